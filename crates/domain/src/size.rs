//! Sizes as people read them, in reasons and hints. Nothing is parsed here, and nothing rounded that matters.

/// `512 MiB`, `20 GiB`, `131.01 GiB`.
pub(crate) fn mib(mib: u64) -> String {
    match mib {
        0..1024 => format!("{mib} MiB"),
        _ => format!("{} GiB", parts_of((mib * 100).div_ceil(1024), 100)),
    }
}

/// So many parts of `whole`, a power of ten, without zeros at the end: `2`, `0.1`, `12.5`.
pub(crate) fn parts_of(parts: u64, whole: u64) -> String {
    let digits = whole.ilog10() as usize;
    let text = format!("{}.{:0digits$}", parts / whole, parts % whole);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_at_a_glance() {
        assert_eq!([0, 512, 1023].map(mib), ["0 MiB", "512 MiB", "1023 MiB"]);
        assert_eq!([1024, 20480].map(mib), ["1 GiB", "20 GiB"]);
        assert_eq!(mib(134_155), "131.02 GiB", "never less than what is asked for");
        assert_eq!(
            [100, 1000, 12_500].map(|cpu| parts_of(cpu, 1000)),
            ["0.1", "1", "12.5"]
        );
        assert_eq!(
            [125, 1000, 0].map(|part| parts_of(part, 10)),
            ["12.5", "100", "0"]
        );
    }
}
