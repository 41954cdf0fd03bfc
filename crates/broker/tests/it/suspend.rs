//! A slice set aside in the middle of its work and taken up again: the device is another's meanwhile, and the result is
//! the same to the byte.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use crate::bench::{Bench, MIB, Served, Vendor, count, eventually, spec, turn};
use crate::part::{Part, own};

/// ffmpeg over OpenCL filters for as many seconds of film.
fn film(mut ffmpeg: std::process::Command, seconds: u64, into: &std::path::Path) -> std::process::Command {
    ffmpeg
        .args(["-hide_banner", "-loglevel", "error", "-y"])
        .args(["-init_hw_device", "opencl=gpu:0.0"])
        .args(["-filter_hw_device", "gpu", "-f", "lavfi", "-i"])
        .arg(format!("testsrc2=size=320x240:rate=25:duration={seconds}"))
        .arg("-vf")
        .arg("format=yuv420p,hwupload,avgblur_opencl=sizeX=9,unsharp_opencl,hwdownload,format=yuv420p")
        .args(["-f", "rawvideo"])
        .arg(into);
    ffmpeg
}

fn set_aside(bench: &Bench, served: &Served) {
    // Refused only while a command waits for the program itself.
    eventually("it is set aside", Duration::from_secs(20), || {
        let said = served.say("suspend");
        assert!(
            said.starts_with("ok") || said.contains("may wait for the program"),
            "{said}"
        );
        said.starts_with("ok")
    });
    assert!(served.say("status").starts_with("ok suspended"));
    assert_eq!(bench.reading(1).used_bytes, 0, "nothing is left on the device");
}

fn in_the_middle(vendor: Vendor, times: u64) {
    let _turn = turn();
    let bench = Bench::on(vendor, &[spec(1, 256), spec(2, 1024)]);
    let (served, other) = (bench.serve(1), bench.serve(2));
    let at = |name: &str| bench.dir.path().join(name);
    let seconds = count("TENURE_SUSPEND_FILM_S", 8);
    let bare = film(bench.bare("ffmpeg"), seconds, &at("bare.yuv"))
        .status()
        .unwrap();
    assert!(bare.success());
    let expected = std::fs::read(at("bare.yuv")).unwrap();
    let mut ffmpeg = film(bench.command(&served, "ffmpeg"), seconds, &at("brokered.yuv"))
        .spawn()
        .unwrap();
    let written = || std::fs::metadata(at("brokered.yuv")).map_or(0, |facts| facts.len());
    for time in 1..=times {
        // By what is written: the last time is before the film's end, however fast it is made.
        let due = expected.len() as u64 * time / (times + 2);
        eventually("it works on", Duration::from_secs(120), || written() >= due);
        set_aside(&bench, &served);
        let busy = bench.reading(1).counter(tenure_limits::Counter::Launches);
        // Another has all of the device meanwhile, once the last of those has left.
        eventually("the last has left", Duration::from_secs(20), || {
            bench.reading(2).used_bytes == 0
        });
        let settings = [("BLOCK", (1000 * MIB).to_string()), ("MOST", "1".to_owned())];
        let mut tenant = Part::start(bench.command(&other, own()), "allocate", &settings);
        assert_eq!(tenant.line("got").unwrap(), "1 0");
        tenant.tell("end");
        drop(tenant);
        assert_eq!(bench.reading(1).counter(tenure_limits::Counter::Launches), busy);
        assert!(ffmpeg.try_wait().unwrap().is_none(), "it waits");
        let said = served.say("resume");
        assert!(said.starts_with("ok"), "{said}");
    }
    assert!(ffmpeg.wait().unwrap().success());
    assert!(
        std::fs::read(at("brokered.yuv")).unwrap() == expected,
        "the frames differ"
    );
}

#[test]
fn ffmpeg_set_aside_in_the_middle_writes_the_same_film() {
    in_the_middle(Vendor::Pocl, 10);
}

#[test]
fn ffmpeg_set_aside_in_the_middle_writes_the_same_film_on_intel() {
    in_the_middle(Vendor::Intel, 10);
}

/// All that the specification says, while the slice is set aside and taken up without rest.
#[test]
fn a_program_notices_nothing() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 512)]);
    let served = bench.serve(1);
    let bare = crate::semantics::lines(bench.bare(own()));
    let stop = AtomicBool::new(false);
    let (brokered, times) = std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let mut times = 0;
            while !stop.load(SeqCst) {
                let said = served.say("suspend");
                assert!(said.starts_with("ok") || said.contains("may wait"), "{said}");
                if said.starts_with("ok") {
                    times += 1;
                    assert_eq!(bench.reading(1).used_bytes, 0);
                    let said = served.say("resume");
                    assert!(said.starts_with("ok"), "{said}");
                }
                std::thread::sleep(Duration::from_millis(3));
            }
            times
        });
        let brokered = crate::semantics::lines(bench.command(&served, own()));
        stop.store(true, SeqCst);
        (brokered, storm.join().unwrap())
    });
    println!("set aside {times} times");
    assert!(times > 5, "{times}");
    for (bare, brokered) in bare.iter().zip(&brokered) {
        assert_eq!(brokered, bare);
    }
    assert_eq!(brokered.len(), bare.len());
}

#[test]
fn a_slice_that_cannot_be_taken_up_stays_aside_whole() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 256)]);
    let served = bench.serve(1);
    let settings = [("BLOCK", (100 * MIB).to_string()), ("MOST", "2".to_owned())];
    let mut tenant = Part::start(bench.command(&served, own()), "allocate", &settings);
    assert_eq!(tenant.line("got").unwrap(), "2 0");
    assert!(served.say("resume").starts_with("refused"));
    set_aside(&bench, &served);
    assert!(served.say("suspend").starts_with("refused"));
    bench.device.resize(1, 150 * MIB).unwrap();
    let said = served.say("resume");
    assert!(said.starts_with("refused the driver refused: Code(-4)"), "{said}");
    assert_eq!(bench.reading(1).used_bytes, 0);
    bench.device.resize(1, 256 * MIB).unwrap();
    assert!(served.say("resume").starts_with("ok"));
    assert_eq!(bench.reading(1).used_bytes, 200 * MIB);
    // One that ends while set aside leaves nothing to take up.
    set_aside(&bench, &served);
    tenant.signal("-KILL");
    eventually("its objects are gone", Duration::from_secs(5), || {
        served.say("status").contains("memory=0")
    });
    assert!(served.say("resume").starts_with("ok bytes=0"));
}

/// What a gibibyte costs to set aside and to take up.
#[test]
fn a_gibibyte_goes_and_comes() {
    let _turn = turn();
    let bench = Bench::on(Vendor::Pocl, &[spec(1, 1100)]);
    let served = bench.serve(1);
    let settings = [("BLOCK", (256 * MIB).to_string()), ("MOST", "4".to_owned())];
    let mut tenant = Part::start(bench.command(&served, own()), "allocate", &settings);
    assert_eq!(tenant.line("got").unwrap(), "4 0");
    println!("suspend: {}", served.say("suspend"));
    println!("resume: {}", served.say("resume"));
    assert_eq!(bench.reading(1).used_bytes, 1024 * MIB);
    tenant.tell("end");
}
