//! Packets with labels as a program of others' reads them: tshark.

use std::fmt::Write as _;
use std::process::Command;

use levee_labelled::Filter;
use levee_policy::{CategorySet, Domain, Label, Range, TagForm};

/// Room for a label's option and more.
const MTU: usize = 1_500;

/// A UDP datagram to the discard port without a checksum (RFC 768), which IPv6 wants (RFC 8200 8.1).
fn datagram(version: u8) -> Vec<u8> {
    let udp = [0x30, 0x39, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4];
    if version == 6 {
        let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
        for host in [1, 2] {
            packet.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        packet.extend(udp);
        let words =
            |octets: &[u8]| octets.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum::<u32>();
        let sum = words(&packet[8..]) + 17 + 12;
        let sum = (sum & 0xffff) + (sum >> 16);
        packet[46..48].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        return packet;
    }
    let mut packet = vec![0x45, 0, 0, 32, 0, 7, 0x40, 0, 64, 17, 0xb6, 0xc2, 192, 0, 2, 1, 192, 0, 2, 2];
    packet.extend(udp);
    packet
}

/// tshark's words for a packet: the fields asked for, with tabs between.
fn read(packets: &[Vec<u8>], fields: &[&str]) -> Vec<String> {
    // pcap 2.4, in this machine's order; link type 101: the packet itself.
    let mut capture: Vec<u8> = Vec::new();
    for word in [
        0xa1b2_c3d4_u32,
        if cfg!(target_endian = "big") { 0x0002_0004 } else { 0x0004_0002 },
        0,
        0,
        65_535,
        101,
    ] {
        capture.extend(word.to_ne_bytes());
    }
    for packet in packets {
        let length = u32::try_from(packet.len()).unwrap();
        for word in [0, 0, length, length] {
            capture.extend(word.to_ne_bytes());
        }
        capture.extend(packet);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file.path()).args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn tshark_reads_in_every_packet_the_label_that_was_meant_and_complains_of_none() {
    let label = Label::confidential(1, CategorySet::from_numbers([0, 1, 2, 9]).unwrap());
    let mut packets = Vec::new();
    for form in [TagForm::Bitmap, TagForm::Enumerated, TagForm::Ranged, TagForm::Permissive] {
        let domain = Domain::new(16, form, [(1, 5)], (0..10).map(|n| (n, n))).unwrap();
        let mut filter = Filter::new(domain, Range::single(label.clone()));
        packets.push(filter.send(&label, &datagram(4), MTU).unwrap());
        packets.push(filter.send(&label, &datagram(6), MTU).unwrap());
    }
    let fields = [
        "ip.cipso.doi",
        "ip.cipso.tag_type",
        "ip.cipso.sensitivity_level",
        "ip.cipso.categories",
        "ip.checksum.status",
        "ipv6.opt.calipso.doi",
        "ipv6.opt.calipso.sens_level",
        "ipv6.opt.calipso.cmpt_bitmap",
        "udp.dstport",
        "_ws.expert.message",
    ];
    let mut expected = String::new();
    // Of tag 6 it tells no more than that it is one.
    for (tag, level, categories) in [(1, "5", "0,1,2,9"), (2, "5", "0,1,2,9"), (5, "5", "9,2-0"), (6, "", "")]
    {
        writeln!(expected, "16\t{tag}\t{level}\t{categories}\t1\t\t\t\t9\t").unwrap();
        writeln!(expected, "\t\t\t\t\t16\t5\te0400000\t9\t").unwrap();
    }
    assert_eq!(read(&packets, &fields), expected.lines().collect::<Vec<_>>());
}
