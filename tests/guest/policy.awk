# Prints a policy for secilc: who hears what another says is at its level, and everything else is allowed. Levels s0 to s15, categories
# c0 to c239, as many as CIPSO's bitmap has.
BEGIN {
    print "(handleunknown allow) (mls true) (policycap network_peer_controls)"
    print "(class process (transition dyntransition)) (class peer (recv)) (classorder (process peer))"
    print "(user u) (role r) (type t) (userrole u r) (roletype r t)"
    for (n = 0; n < 240; n++) { print "(category c" n ")"; categories = categories " c" n }
    print "(categoryorder (" categories "))"
    for (n = 0; n < 16; n++) { print "(sensitivity s" n ")"; levels = levels " s" n }
    print "(sensitivityorder (" levels "))"
    for (n = 0; n < 16; n++) print "(sensitivitycategory s" n " (range c0 c239))"
    print "(level low (s0)) (level high (s15 (range c0 c239))) (levelrange all (low high))"
    print "(userlevel u low) (userrange u all)"
    sids = "kernel security unlabeled fs file file_labels init any_socket port netif netmsg node igmp_packet icmp_socket tcp_socket" \
        " sysctl_modprobe sysctl sysctl_fs sysctl_kernel sysctl_net sysctl_net_unix sysctl_vm sysctl_dev kmod policy scmp_packet devnull"
    count = split(sids, sid, " ")
    for (n = 1; n <= count; n++) print "(sid " sid[n] ") (sidcontext " sid[n] " (u r t all))"
    print "(sidorder (" sids "))"
    print "(allow t t (process (transition dyntransition))) (allow t t (peer (recv)))"
    print "(mlsconstrain (peer (recv)) (eq l1 l2))"
}
