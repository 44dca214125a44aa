//! The model of SPI steering, held to `Steering`.

use levee_esp::{Spi, Steering};
use levee_proofs::{Case, Draw, Model, bits, none};

#[test]
fn an_spi_names_the_slot_that_the_model_says() {
    let mut draw = Draw::new(0x7e57_0003);
    let mut cases = Vec::new();
    for slots in [0, 1, 4_094, 4_095, 4_096, 4_097, 0x7fff, 0xffff] {
        let code = Steering::new(&[1; Steering::KEY], slots).is_some();
        cases.push(Case::truth(format!("(is-slots {slots})"), code));
    }
    for run in 0..600_u32 {
        // Keys whose highest bits are set and are not, since doubling them carries.
        let key = draw.wide() >> (run % 4);
        let slots = if run % 3 == 0 { 4_095 } else { draw.below(4_095) + 1 };
        let steering = Steering::new(&key.to_le_bytes(), slots as u16).expect("so many slots");
        let any = draw.number() as u32 >> (run % 24);
        // Two that are one bit apart as well.
        for spi in [any, any ^ 1 << draw.below(32)].into_iter().filter_map(Spi::new) {
            let term = format!("(slot {} {slots} {})", bits(128, key), bits(32, spi.get()));
            cases.push(Case::written(term, steering.slot(spi).to_string()));
        }
    }
    assert!(cases.len() > 1_100, "{} cases", cases.len());
    none(&Model::read("steering").compare(&cases));
}
