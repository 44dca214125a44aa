//! What a service may ask for in a site file, and what there is in the filter's text, are the same.

use levee_policy::site::Need;
use levee_sys::seccomp::Filter;

/// What services run under.
const SERVICE: &str = include_str!("../../../conf/seccomp/service.toml");

#[test]
fn every_need_of_a_site_file_is_a_group_of_the_filter_and_every_group_is_a_need() {
    let needs: Vec<&str> = Need::ALL.iter().map(|need| need.as_str()).collect();
    assert_eq!(Filter::groups(SERVICE).unwrap(), needs);
    Filter::compile_with(SERVICE, &needs).unwrap();
}
