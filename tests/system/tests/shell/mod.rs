//! A service that runs the Python program that it is sent: services are assumed taken over.
#![allow(dead_code)]

use levee_system::{World, senders};

/// The service, in a site file, with these further keys.
pub fn site(more: &str) -> String {
    SERVICE.replace("mode = \"direct\"\n", &format!("mode = \"direct\"\n{more}\n"))
}

const SERVICE: &str = r#"
[[service]]
name = "shell"
port = 7000
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
software = ["python3"]
command = ["/usr/bin/python3", "-c", '''
import socket,subprocess,threading
l=socket.socket(fileno=3)
l.setblocking(True)
def one(c):
    d=b""
    while True:
        b=c.recv(65536)
        if not b: break
        d+=b
    p=subprocess.Popen(["/usr/bin/python3","-u","-c",d.decode()],stdout=c.fileno())
    p.communicate()
    c.shutdown(2); c.close()
while True:
    c,a=l.accept()
    threading.Thread(target=one,args=(c,)).start()
''']
"#;

/// Sends its argument to the service and prints the answer.
pub const CLIENT: &str = r#"
import socket,sys
s=socket.create_connection(("10.80.0.1",7000)); s.sendall(sys.argv[1].encode()); s.shutdown(1)
while True:
    b=s.recv(65536)
    if not b: break
    sys.stdout.write(b.decode())
"#;

/// Has the service say what time it is, and prints how far its clock is behind this host's at most.
const COMPARE: &str = r#"
import socket,time
s=socket.create_connection(("10.80.0.1",7000))
s.sendall(b"import time\nfor i in range(40): print(repr(time.time()), flush=True); time.sleep(.02)"); s.shutdown(1)
f=s.makefile()
print(min(time.time()-float(line) for line in iter(f.readline,"")))
"#;

/// What a Python program prints that runs as a service at the label of this workstation's session.
#[track_caller]
pub fn inside(world: &World, workstation: &str, program: &str) -> String {
    world.run(workstation, &["/usr/bin/python3", "-c", CLIENT, program]).ok()
}

/// How far the clock of the label of this workstation's session is behind the host's, in seconds; more by as long as a line takes.
#[track_caller]
pub fn behind(world: &World, workstation: &str) -> f64 {
    let said = world.run(workstation, &["/usr/bin/python3", "-c", COMPARE]).ok();
    said.trim().parse().unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// The host's time, as programs have it.
pub fn now() -> f64 {
    senders::now()
}
