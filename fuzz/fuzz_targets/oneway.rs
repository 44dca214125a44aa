#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| levee_fuzz_targets::oneway::run(input));
