//! When a campaign may work: a daily window in a time zone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Minutes of a day.
pub const DAY_MINUTES: u16 = 24 * 60;

/// A text that is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a window: expected two times of day that differ, as in 20:00-07:30")]
pub struct InvalidWindow(pub String);

/// A daily window, for example `20:00-07:30`; one whose end is before its begin goes over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Window {
    begin_minute: u16,
    end_minute: u16,
}

impl Window {
    /// Minute of the day at which it opens.
    #[must_use]
    pub fn begin_minute(self) -> u16 {
        self.begin_minute
    }

    /// Minute of the day at which it closes; before the begin: on the next day.
    #[must_use]
    pub fn end_minute(self) -> u16 {
        self.end_minute
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (begin, end) = (self.begin_minute, self.end_minute);
        write!(f, "{:02}:{:02}-{:02}:{:02}", begin / 60, begin % 60, end / 60, end % 60)
    }
}

impl FromStr for Window {
    type Err = InvalidWindow;

    fn from_str(text: &str) -> Result<Self, InvalidWindow> {
        let wrong = || InvalidWindow(text.to_owned());
        let (begin, end) = text.split_once('-').ok_or_else(wrong)?;
        let minute = |time: &str| {
            let (hours, minutes) = time.trim().split_once(':')?;
            let digits = |part: &str| {
                let fits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
                fits.then(|| part.parse::<u16>().ok()).flatten()
            };
            let (hours, minutes) = (digits(hours)?, digits(minutes)?);
            (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
        };
        let (begin_minute, end_minute) = (minute(begin).ok_or_else(wrong)?, minute(end).ok_or_else(wrong)?);
        if begin_minute == end_minute {
            return Err(wrong());
        }
        Ok(Self { begin_minute, end_minute })
    }
}

impl TryFrom<String> for Window {
    type Error = InvalidWindow;

    fn try_from(text: String) -> Result<Self, InvalidWindow> {
        text.parse()
    }
}

impl From<Window> for String {
    fn from(window: Window) -> Self {
        window.to_string()
    }
}

/// When steps may begin. A step that could not end before the window closes does not begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The daily window.
    pub window: Window,
    /// Name of the time zone in the IANA database, for example `Europe/Berlin`.
    pub time_zone: String,
}
