# Usage: zsh -f complete.zsh PROGRAMS DEFINITIONS LINE OFFERED
# Types a line and the tab key at a zsh, and waits until it shows what is to be offered.
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; setopt auto_list no_list_ambiguous; LISTMAX=0; path=($1 \$path); fpath=($2 \$fpath)"
zpty -w shell "autoload -Uz compinit; compinit -u -D; print rea''dy"
zpty -r -m shell said '*ready*'
zpty -n -w shell "$3"$'\t'
zpty -r -m shell said "*$4*" && print offered
zpty -d shell
