//! The view state of an attempt's page. The address holds all of it, so that a link shows the same to every reader.

use nightshift_protocol::api::RunDetail;
use nightshift_protocol::attempt::Attempt;

use super::tab::Tab;
use crate::chart::Zoom;
use crate::source::DiffView;

/// The form for `PyTorch`, as addresses name it.
const MODEL_NEW: &str = "model-new";

/// The other side of a source comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// The attempt it was derived from.
    Parent,
    /// The best attempt of the run.
    Best,
    /// The reference.
    Baseline,
    /// An attempt of the run.
    Attempt(u32),
}

impl Against {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "parent" => Some(Self::Parent),
            "best" => Some(Self::Best),
            "baseline" => Some(Self::Baseline),
            number => number.parse().ok().map(Self::Attempt),
        }
    }

    /// Its name in an address.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Parent => "parent".to_owned(),
            Self::Best => "best".to_owned(),
            Self::Baseline => "baseline".to_owned(),
            Self::Attempt(number) => number.to_string(),
        }
    }

    /// The attempt that is meant; none for the baseline, and for what does not exist.
    pub(crate) fn find<'a>(self, detail: &'a RunDetail, attempt: &Attempt) -> Option<&'a Attempt> {
        let number = match self {
            Self::Parent => attempt.parent?,
            Self::Best => detail.view.best_attempt?,
            Self::Attempt(number) => number,
            Self::Baseline => return None,
        };
        detail.view.attempts.iter().find(|other| other.number == number)
    }
}

/// Selects the shown prompts and replies, which are long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Talk {
    /// No texts, so that the page stays small.
    #[default]
    Folded,
    /// One call, by its place among those of the attempt.
    Call(usize),
    /// Everything.
    All,
}

impl Talk {
    fn parse(text: &str) -> Option<Self> {
        if text == "all" { Some(Self::All) } else { text.parse().ok().map(Self::Call) }
    }

    /// Returns its name in an address; `None` for the default.
    pub(crate) fn name(self) -> Option<String> {
        match self {
            Self::Folded => None,
            Self::Call(place) => Some(place.to_string()),
            Self::All => Some("all".to_owned()),
        }
    }

    /// Returns whether the call at this place is shown.
    pub(crate) fn shows(self, place: usize) -> bool {
        match self {
            Self::Folded => false,
            Self::Call(one) => one == place,
            Self::All => true,
        }
    }
}

/// How an attempt is looked at.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Look {
    /// `tab`: which tab is open.
    pub(crate) tab: Tab,
    /// All tabs are shown, one below the other, as in a report.
    is_whole: bool,
    /// `diff`: what the source is compared with.
    pub(crate) against: Option<Against>,
    /// `view`: how.
    pub(crate) view: DiffView,
    /// `pin`: the attempt whose counters are the baseline of the others.
    pub(crate) pin: Option<u32>,
    /// `as=model-new`: whether the program is shown as it is taken away for `PyTorch`.
    pub(crate) as_model_new: bool,
    /// `from` and `to`: the part of the timeline, in microseconds.
    pub(crate) window_us: (Option<f64>, Option<f64>),
    /// `talk`: which prompts and replies.
    pub(crate) talk: Talk,
}

impl Look {
    /// Parses an address. Invalid values are ignored.
    pub(crate) fn of(query: &[(String, String)]) -> Self {
        let value = |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let time = |name: &str| value(name).and_then(|text| text.parse::<f64>().ok()).filter(|time| time.is_finite());
        let tab = value("tab").and_then(Tab::parse);
        let look = Self {
            tab: Tab::Overview,
            is_whole: false,
            against: value("diff").and_then(Against::parse),
            view: DiffView::parse(value("view")),
            pin: value("pin").and_then(|text| text.parse().ok()),
            as_model_new: value("as") == Some(MODEL_NEW),
            window_us: (time("from"), time("to")),
            talk: value("talk").and_then(Talk::parse).unwrap_or_default(),
        };
        Self { tab: tab.unwrap_or_else(|| look.implied()), ..look }
    }

    /// Returns the tab of an address that names none: the one that its other choices are about.
    fn implied(&self) -> Tab {
        if self.against.is_some() || self.as_model_new {
            Tab::Source
        } else if self.pin.is_some() || self.window_us != (None, None) {
            Tab::Profile
        } else if self.talk != Talk::Folded {
            Tab::Conversation
        } else {
            Tab::Overview
        }
    }

    /// Returns whether this tab is on the page.
    pub(crate) fn shows(&self, tab: Tab) -> bool {
        self.is_whole || self.tab == tab
    }

    /// Returns whether every tab is on the page.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the view with all tabs and all texts, for a report.
    pub(crate) fn whole(self) -> Self {
        Self { is_whole: true, talk: Talk::All, ..self }
    }

    /// The same at another tab.
    pub(crate) fn opened(&self, tab: Tab) -> Self {
        Self { tab, ..self.clone() }
    }

    /// Returns the address of a line of the source.
    pub(crate) fn source_line(&self, line: u32) -> String {
        if self.shows(Tab::Source) { format!("#L{line}") } else { self.opened(Tab::Source).href(&format!("L{line}")) }
    }

    /// The address of this look, at an anchor of the page; at its beginning without one.
    pub(crate) fn href(&self, anchor: &str) -> String {
        let mut pairs = Vec::new();
        if self.tab != self.implied() {
            pairs.push(format!("tab={}", self.tab.as_str()));
        }
        if let Some(against) = self.against {
            pairs.push(format!("diff={}", against.name()));
        }
        if self.view != DiffView::default() {
            pairs.push(format!("view={}", self.view.as_str()));
        }
        pairs.extend(self.pin.map(|pin| format!("pin={pin}")));
        pairs.extend(self.as_model_new.then(|| format!("as={MODEL_NEW}")));
        pairs.extend(self.window_us.0.map(|from| format!("from={from:.3}")));
        pairs.extend(self.window_us.1.map(|to| format!("to={to:.3}")));
        pairs.extend(self.talk.name().map(|talk| format!("talk={talk}")));
        // A question mark alone leaves everything aside that the present address asks for.
        let fragment = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
        format!("?{}{fragment}", pairs.join("&"))
    }

    /// The same with another comparison.
    pub(crate) fn compared(&self, against: Option<Against>) -> Self {
        Self { against, ..self.clone() }
    }

    /// The same with another layout of the comparison.
    pub(crate) fn laid_out(&self, view: DiffView) -> Self {
        Self { view, ..self.clone() }
    }

    /// The same, with the program shown as it is taken away for `PyTorch`.
    pub(crate) fn as_model_new(&self, as_model_new: bool) -> Self {
        Self { as_model_new, ..self.clone() }
    }

    /// The same with other prompts and replies.
    pub(crate) fn talking(&self, talk: Talk) -> Self {
        Self { talk, ..self.clone() }
    }

    /// The same with another pinned attempt.
    pub(crate) fn pinned(&self, pin: Option<u32>) -> Self {
        Self { pin, ..self.clone() }
    }

    /// The same with another part of the timeline.
    pub(crate) fn zoomed(&self, zoom: Zoom) -> Self {
        let window_us = if zoom.is_whole() { (None, None) } else { (Some(zoom.from_us), Some(zoom.to_us)) };
        Self { window_us, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(query: &str) -> Look {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Look::of(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn an_address_says_everything_and_reads_back() {
        for query in [
            "",
            "diff=parent",
            "diff=7&view=split",
            "diff=best&as=model-new",
            "diff=baseline&pin=3&from=1.500&to=20.250",
            "talk=2",
            "talk=all",
            "tab=source",
            "tab=checks&diff=parent",
            "tab=overview&pin=3",
        ] {
            assert_eq!(look(query).href("source"), format!("?{query}#source"));
        }
        assert_eq!(look("tab=profile").href(""), "?tab=profile");
    }

    #[test]
    fn an_address_without_a_tab_opens_the_one_that_its_choices_are_about() {
        let tabs =
            ["", "diff=parent", "as=model-new", "pin=3", "from=1", "talk=all", "tab=nothing", "diff=2&tab=checks"];
        let opened = tabs.map(|query| look(query).tab);
        assert_eq!(
            opened,
            [
                Tab::Overview,
                Tab::Source,
                Tab::Source,
                Tab::Profile,
                Tab::Profile,
                Tab::Conversation,
                Tab::Overview,
                Tab::Checks
            ]
        );
    }

    #[test]
    fn lines_of_the_source_are_found_from_every_tab() {
        assert_eq!(look("tab=source").source_line(7), "#L7");
        assert_eq!(look("tab=checks").source_line(7), "?tab=source#L7");
        assert_eq!(look("tab=checks").whole().source_line(7), "#L7");
    }

    #[test]
    fn invalid_query_values_are_ignored() {
        assert_eq!(look("diff=<script>&view=x&pin=-1&from=NaN&to=inf&from=2&talk=-1"), Look::default());
    }
}
