//! The replay window against a set of everything seen.

use std::collections::HashSet;

use levee_esp::{ReplayWindow, WINDOW};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Forward(u64),
    Back(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1_u64..4).prop_map(Step::Forward),
        2 => (1_u64..200).prop_map(Step::Forward),
        1 => (1_u64..3 * WINDOW).prop_map(Step::Forward),
        4 => (0_u64..100).prop_map(Step::Back),
        2 => (0_u64..WINDOW + 200).prop_map(Step::Back),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn a_number_passes_exactly_when_it_is_in_the_window_and_new(
        start in prop_oneof![Just(0_u64), 0..10 * WINDOW, (1_u64 << 32) - 20_000..(1 << 32) + 20_000, any::<u64>()],
        extended in any::<bool>(),
        steps in steps(),
    ) {
        let ceiling = if extended { u64::MAX } else { u64::from(u32::MAX) };
        let mut window = ReplayWindow::new(extended);
        let mut seen = HashSet::new();
        let mut top = 0;
        if start > 0 && start <= ceiling {
            window.advance(start).unwrap();
            seen.insert(start);
            top = start;
        }
        for step in steps {
            let number = match step {
                Step::Forward(n) => top.checked_add(n).filter(|n| *n <= ceiling),
                Step::Back(n) => top.checked_sub(n),
            };
            let Some(number) = number else { continue };
            let fresh = number > 0 && !seen.contains(&number) && (number > top || top - number < WINDOW);
            match window.check(number as u32) {
                Ok(whole) if fresh => {
                    prop_assert_eq!(whole, number);
                    prop_assert_eq!(window.advance(whole), Ok(number > top));
                    seen.insert(number);
                    top = top.max(number);
                }
                // With 64-bit numbers one that is too old is taken for one of the next subspace, which then does not
                // authenticate.
                Ok(whole) => {
                    prop_assert!(extended && whole > top, "{} passed as {}", number, whole);
                }
                Err(_) => prop_assert!(!fresh, "{} was refused below {}", number, top),
            }
            prop_assert_eq!(window.top(), top);
        }
    }
}
