use proptest::prelude::*;

use super::*;

fn frames(text: &str) -> Frames {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

#[test]
fn ranges_mean_what_people_write() {
    for (text, count, some) in [
        ("7", 1, vec![7]),
        ("0", 1, vec![0]),
        ("1-240", 240, vec![1, 2, 3]),
        ("1-240x2", 120, vec![1, 3, 5]),
        ("1-240x1000", 1, vec![1]),
        ("1-3,5,10-20x5", 7, vec![1, 2, 3, 5, 10, 15, 20]),
        ("5-5", 1, vec![5]),
    ] {
        let frames = frames(text);
        assert_eq!(frames.count(), count, "{text}");
        assert_eq!(frames.iter().take(some.len()).collect::<Vec<_>>(), some, "{text}");
        assert_eq!(frames.iter().count() as u64, count, "{text}");
    }
    assert_eq!(frames("1-240x2").iter().last(), Some(239));
    assert_eq!(frames("1-240x2").to_string(), "1-240x2");
}

#[test]
fn nothing_else_is_taken_for_frames() {
    for bad in [
        "",
        " ",
        "-",
        "x",
        ",",
        "1,",
        ",1",
        "1-",
        "-1",
        "1--2",
        "1-2-3",
        "+1",
        "1 - 2",
        "1-10x",
        "1-10x0",
        "1-10x-1",
        "1-10x2x2",
        "1x2",
        "10-1",
        "1-5,3",
        "1-5,5",
        "5,1",
        "1,1",
        "1.5",
        "0x10",
        "1e3",
        "a-b",
        "1-100000000",
        "4294967296",
        "99999999999999999999",
        "0-1000000",
        "1–2",
        "１-２",
        "1;2",
        "1-10X2",
        "1\n2",
    ] {
        let parsed = bad.parse::<Frames>();
        assert!(parsed.is_err(), "{bad:?} was taken for {parsed:?}");
    }
    assert!("1-1000000".parse::<Frames>().is_ok());
    let many = (0..300).map(|frame| (frame * 2).to_string()).collect::<Vec<_>>();
    assert!(many.join(",").parse::<Frames>().is_err());
    assert!("1".repeat(5000).parse::<Frames>().is_err());
}

#[test]
fn a_wrong_list_is_told_how_to_be_right() {
    let why = |text: &str| text.parse::<Frames>().expect_err(text).0;
    assert_eq!(why("10-1"), "10-1 goes down; write 1-10");
    assert!(why("1-5,3").contains("do not overlap"));
    assert!(why("1x2").contains("no end"));
}

fn any_frames() -> impl Strategy<Value = Frames> {
    prop::collection::vec((1_u32..50, 0_u32..60, 1_u32..9), 1..6).prop_map(|ranges| {
        let mut next = 0;
        let ranges = ranges.into_iter().map(|(gap, long, step)| {
            let first = next + gap;
            next = first + long;
            let step = if long == 0 { 1 } else { step };
            Range {
                first,
                last: next,
                step,
            }
        });
        Frames(ranges.collect())
    })
}

proptest! {
    #[test]
    fn a_list_is_read_as_it_is_written(frames in any_frames()) {
        let read: Frames = frames.to_string().parse().expect("what was written");
        prop_assert_eq!(&read, &frames);
        let json = serde_json::to_string(&frames).expect("text");
        prop_assert_eq!(serde_json::from_str::<Frames>(&json).expect("text"), frames);
    }

    #[test]
    fn pieces_are_the_whole_once_and_in_order(frames in any_frames(), size in 0_u64..20) {
        let whole: Vec<u32> = frames.iter().collect();
        prop_assert_eq!(whole.len() as u64, frames.count());
        prop_assert!(whole.windows(2).all(|two| two[0] < two[1]));
        prop_assert!(whole.iter().all(|frame| frames.contains(*frame)));
        let held = (0..*whole.last().unwrap() + 2).filter(|frame| frames.contains(*frame)).count();
        prop_assert_eq!(held, whole.len());
        let chunks: Vec<Frames> = frames.chunks(size).collect();
        prop_assert_eq!(chunks.iter().flat_map(Frames::iter).collect::<Vec<_>>(), whole.clone());
        prop_assert!(chunks.iter().all(|chunk| chunk.count() <= size.max(1)));
        let short = chunks.iter().filter(|chunk| chunk.count() < size.max(1)).count();
        prop_assert!(short <= 1, "only the last is short");
        let split: Vec<Frames> = frames.split(size).collect();
        prop_assert_eq!(split.iter().flat_map(Frames::iter).collect::<Vec<_>>(), whole);
        prop_assert_eq!(split.len() as u64, size.clamp(1, frames.count()));
        let counts: Vec<u64> = split.iter().map(Frames::count).collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        for piece in chunks.iter().chain(&split) {
            prop_assert_eq!(&piece.to_string().parse::<Frames>().expect("a piece is a list"), piece);
        }
    }
}
