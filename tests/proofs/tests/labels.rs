//! The model of labels, held to `Label`, `Range` and `CategorySet`.

use levee_policy::{CategorySet, Class, Label, Range, flow_allowed};
use levee_proofs::{Case, Draw, Model, bits, none};

/// 256 hexadecimal digits.
fn digits(set: &CategorySet) -> String {
    let mut words = [0_u64; 16];
    set.iter().for_each(|number| words[usize::from(number / 64)] |= 1 << (number % 64));
    words.iter().rev().map(|word| format!("{word:016x}")).collect()
}

fn of_set(set: &CategorySet) -> String {
    format!("#x{}", digits(set))
}

fn of(label: &Label) -> String {
    let class = |class: &Class| format!("{:02x}{}", class.level, digits(&class.categories));
    format!("#x{}{}", class(&label.confidentiality), class(&label.integrity))
}

/// Few categories, in one word or in many, so that sets often have the same.
fn set(draw: &mut Draw) -> CategorySet {
    let of = draw.one(&[&[0, 1, 63][..], &[0, 64, 127, 128], &[5, 500, 959, 960, 1_023], &[]]);
    let numbers: Vec<u16> = of.iter().copied().filter(|_| draw.below(2) == 0).collect();
    CategorySet::from_numbers(numbers).expect("numbers below 1,024")
}

fn class(draw: &mut Draw) -> Class {
    let any = draw.number() as u8;
    Class::new(draw.one(&[0, 1, 127, 128, 254, 255, any]), set(draw))
}

fn label(draw: &mut Draw) -> Label {
    Label::new(class(draw), class(draw))
}

#[test]
fn sets_of_categories_are_what_the_model_says() {
    let mut draw = Draw::new(0x7e57_0004);
    let mut cases = Vec::new();
    for _ in 0..120 {
        let (a, b) = (set(&mut draw), set(&mut draw));
        let both = format!("{} {}", of_set(&a), of_set(&b));
        cases.push(Case::truth(format!("(is-superset {both})"), a.is_superset(&b)));
        for (name, code) in
            [("union", a.union(&b)), ("intersection", a.intersection(&b)), ("difference", a.difference(&b))]
        {
            cases.push(Case::written(format!("({name} {both})"), of_set(&code)));
        }
        let any = draw.number() as u16;
        let number = draw.one(&[0, 1, 63, 64, 127, 500, 959, 960, 1_023, 1_024, 1_087, u16::MAX, any]);
        let given = format!("{} {}", of_set(&a), bits(16, number));
        cases.push(Case::truth(format!("(has {given})"), a.contains(number)));
        let mut with = a.clone();
        with.insert(number);
        cases.push(Case::written(format!("(with {given})"), of_set(&with)));
    }
    labels(&mut draw, &mut cases);
    ranges(&mut draw, &mut cases);
    assert!(cases.len() > 3_000, "{} cases", cases.len());
    none(&Model::read("labels").compare(&cases));
}

fn labels(draw: &mut Draw, cases: &mut Vec<Case>) {
    for run in 0..160 {
        let (a, mut b) = (label(draw), label(draw));
        // Two of which one dominates the other, and two that are the same, are rare by chance.
        match run % 4 {
            0 => b = a.join(&b),
            1 => b.confidentiality = a.confidentiality.clone(),
            2 if run % 8 == 2 => b = a.clone(),
            _ => {}
        }
        let both = format!("{} {}", of(&a), of(&b));
        cases.push(Case::truth(format!("(dominates {both})"), a.dominates(&b)));
        cases.push(Case::truth(format!("(flows {both})"), flow_allowed(&a, &b)));
        cases.push(Case::written(format!("(join {both})"), of(&a.join(&b))));
        cases.push(Case::written(format!("(meet {both})"), of(&a.meet(&b))));
        let around = Range::around(&a, &b);
        cases.push(Case::written(format!("(around-low {both})"), of(around.low())));
        cases.push(Case::written(format!("(around-high {both})"), of(around.high())));
        cases.push(Case::truth(format!("(is-range {both})"), Range::new(a, b).is_some()));
    }
}

fn ranges(draw: &mut Draw, cases: &mut Vec<Case>) {
    for run in 0..160 {
        let (a, b, c) = (label(draw), label(draw), label(draw));
        let one = Range::around(&a, &b);
        // One that has something in common with it by construction, or one that may have.
        let other = if run % 2 == 0 { Range::around(&a, &c) } else { Range::around(&label(draw), &c) };
        let ends = |range: &Range| format!("{} {}", of(range.low()), of(range.high()));
        let one_ends = ends(&one);
        for l in [&c, one.low(), &a, &one.high().join(&c)] {
            cases.push(Case::truth(format!("(contains {one_ends} {})", of(l)), one.contains(l)));
        }
        let inner = Range::around(&a, one.high());
        for range in [&other, &inner, &one] {
            let term = format!("(includes {one_ends} {})", ends(range));
            cases.push(Case::truth(term, one.includes(range)));
        }
        let low = format!("(common-low {} {})", of(one.low()), of(other.low()));
        let high = format!("(common-high {} {})", of(one.high()), of(other.high()));
        let common = one.intersection(&other);
        cases.push(Case::truth(format!("(is-range {low} {high})"), common.is_some()));
        if let Some(common) = common {
            cases.push(Case::written(low.clone(), of(common.low())));
            cases.push(Case::written(high.clone(), of(common.high())));
        }
    }
}
