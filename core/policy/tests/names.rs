//! Names, to the ends of what they may be.

use levee_policy::{HardwareAddress, HostName, PartitionName, UserName};

#[test]
fn a_persons_and_a_hosts_name_begin_with_a_letter_or_digit_and_have_an_end() {
    for (name, most) in [("a", 32), ("0", 32), ("a.b_c-d9", 32), ("9-", 32)] {
        let longest = format!("{name}{}", "x".repeat(most - name.len()));
        for text in [name, &longest] {
            assert!(UserName::new(text).is_ok(), "{text}");
        }
        let beyond = format!("{longest}x");
        assert!(UserName::new(&beyond).is_err() && HostName::new(&beyond).is_ok());
    }
    assert!(HostName::new(&"h".repeat(64)).is_ok() && HostName::new(&"h".repeat(65)).is_err());
    for wrong in ["", ".", "-a", "_a", ".a", "A", "aA", "a b", "a/b", "a\0", "\u{e4}", "a\u{e4}", "a@b"] {
        assert!(UserName::new(wrong).is_err() && HostName::new(wrong).is_err(), "{wrong:?}");
    }
    let told = UserName::new("A").unwrap_err().to_string();
    assert_eq!(
        told,
        "not a valid user name: 1 to 32 of a-z, 0-9, '.', '_' and '-', the first a letter or digit"
    );
}

#[test]
fn a_partitions_name_begins_with_a_letter_and_is_a_hosts_name() {
    for text in ["a", "a1", "a-1", "front-desk-2", &"p".repeat(32)] {
        assert!(PartitionName::new(text).is_ok(), "{text}");
    }
    for wrong in ["", "1", "1a", "-a", "a.b", "a_b", "A", "aB", "a b", &"p".repeat(33)] {
        assert!(PartitionName::new(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_hardware_address_is_six_octets_of_two_digits_each_and_says_what_it_was_written_as() {
    let address: HardwareAddress = "02:00:5E:00:53:fe".parse().unwrap();
    assert_eq!(address.octets(), [2, 0, 0x5e, 0, 0x53, 0xfe]);
    assert_eq!(address.to_string(), "02:00:5e:00:53:fe");
    for wrong in [
        "",
        "02:00:5e:00:53",
        "02:00:5e:00:53:02:01",
        "2:00:5e:00:53:02",
        "002:00:5e:00:53:02",
        "+2:00:5e:00:53:02",
        "0g:00:5e:00:53:02",
        "02-00-5e-00-53-02",
        "02:00:5e:00:53:",
        "02:00:5e:00:53:02 ",
    ] {
        assert!(wrong.parse::<HardwareAddress>().is_err(), "{wrong:?}");
    }
}

#[test]
fn an_interface_can_have_any_address_but_a_groups_and_nobodys() {
    for (text, usable) in [
        ("02:00:5e:00:53:02", true),
        ("00:00:00:00:00:01", true),
        ("fe:ff:ff:ff:ff:ff", true),
        ("00:00:00:00:00:00", false),
        ("01:00:5e:00:00:01", false),
        ("33:33:00:00:00:01", false),
        ("ff:ff:ff:ff:ff:ff", false),
    ] {
        assert_eq!(text.parse::<HardwareAddress>().unwrap().is_usable(), usable, "{text}");
    }
}
