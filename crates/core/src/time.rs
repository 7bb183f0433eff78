//! Unix times as ISO 8601 in UTC, to the second: `2026-11-29T21:05:07Z`.

const DAY: i64 = 86_400;

/// The text of a unix time in milliseconds.
pub fn iso(ms: u64) -> String {
    // Beyond the year 9999 the form has no text: such a time is shown as its last second.
    let seconds = i64::try_from(ms / 1000).unwrap_or(i64::MAX).min(253_402_300_799);
    let (days, rest) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The same to the millisecond: `2026-11-29T21:05:07.123Z`.
pub fn iso_millis(ms: u64) -> String {
    let mut text = iso(ms);
    text.truncate(text.len() - 1);
    text + &format!(".{:03}Z", ms % 1000)
}

/// Reads what [`iso`] writes, to milliseconds; `None` where it is no such text.
pub fn parse_iso(text: &str) -> Option<u64> {
    let b = text.as_bytes();
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')];
    if b.len() != 20 || marks.iter().any(|&(at, mark)| b[at] != mark) {
        return None;
    }
    let number = |from: usize, to: usize| {
        b[from..to]
            .iter()
            .try_fold(0i64, |sum, d| d.is_ascii_digit().then(|| sum * 10 + i64::from(d - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let days = days(year, month, day);
    if civil(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    u64::try_from(days * DAY + hour * 3600 + minute * 60 + second).ok().map(|s| s * 1000)
}

/// Days since 1970-01-01 to year, month, day (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_index = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month_index + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times_have_their_text() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_795_986_307, "2026-11-29T21:05:07Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(iso(seconds * 1000 + 999), text);
            assert_eq!(parse_iso(text), Some(seconds * 1000), "{text}");
        }
        assert_eq!(iso(u64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(iso_millis(1_795_986_307_045), "2026-11-29T21:05:07.045Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in [
            "",
            "2026-11-29",
            "2026-11-29T21:05:07",
            "2026-11-29T21:05:07+01",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "２026-01-01T00:00Z",
        ] {
            assert_eq!(parse_iso(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_second_reads_back(seconds in 0u64..253_402_300_800) {
            prop_assert_eq!(parse_iso(&iso(seconds * 1000)), Some(seconds * 1000));
        }
    }
}
