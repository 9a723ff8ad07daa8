//! The frame around the content of every page.

mod frame;
mod help;
mod navigation;

use leptos::prelude::*;
use nightshift_protocol::api::RunSummary;
use nightshift_protocol::run::RunStatus;

use crate::address::Address;
use crate::assets::ASSETS;
use crate::markup::visible;
use crate::picks::Picks;
use crate::visitor::Visitor;

pub(crate) use navigation::Section;

/// Minimum interval between two reads of a page over all attempts.
const SUMMED_PAUSE_MS: u64 = 3_000;
/// Minimum interval between two reads of a campaign's page, which is over all of its attempts.
const CAMPAIGN_PAUSE_MS: u64 = 1_000;

/// The live data of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Live {
    /// The data does not change any more.
    Still,
    /// Anything.
    Everything,
    /// Aggregates of everything: changes within a few seconds are shown together, because each read is over all
    /// attempts.
    Summed,
    /// One campaign and its runs.
    Campaign(String),
    /// One run.
    Run(String),
}

impl Live {
    /// Returns the live data of a page about this run. A failed run may be tried again.
    pub(crate) fn of_run(run: &RunSummary) -> Self {
        match run.status {
            RunStatus::Completed | RunStatus::Cancelled => Self::Still,
            RunStatus::Running | RunStatus::Paused | RunStatus::Cancelling | RunStatus::Failed => {
                Self::Run(run.id.to_string())
            }
        }
    }

    /// The question to `/api/v1/live`, for the program of the pages.
    fn query(&self) -> Option<String> {
        match self {
            Self::Still => None,
            Self::Everything => Some(String::new()),
            Self::Summed => Some(format!("pause_ms={SUMMED_PAUSE_MS}")),
            Self::Campaign(id) => Some(format!("campaign={id}&pause_ms={CAMPAIGN_PAUSE_MS}")),
            Self::Run(id) => Some(format!("run={id}")),
        }
    }
}

/// A page above this one.
#[derive(Debug, Clone)]
struct Crumb {
    text: String,
    href: String,
}

/// A page: its content and the properties that the frame needs.
#[derive(Debug)]
pub(crate) struct Page {
    title: String,
    section: Option<Section>,
    crumbs: Vec<Crumb>,
    live: Live,
    is_list: bool,
    content: AnyView,
}

impl Page {
    /// A page that does not change by itself.
    pub(crate) fn new(title: impl Into<String>, content: impl IntoView + 'static) -> Self {
        Self {
            title: title.into(),
            section: None,
            crumbs: Vec::new(),
            live: Live::Still,
            is_list: false,
            content: content.into_view().into_any(),
        }
    }

    /// Which entry of the navigation it belongs to.
    pub(crate) fn section(self, section: Section) -> Self {
        Self { section: Some(section), ..self }
    }

    /// Adds the next page above this one, from the top.
    pub(crate) fn crumb(mut self, text: impl Into<String>, href: impl Into<String>) -> Self {
        self.crumbs.push(Crumb { text: text.into(), href: href.into() });
        self
    }

    /// Adds something below the content.
    pub(crate) fn below(self, more: Option<AnyView>) -> Self {
        let content = view! { {self.content}{more} }.into_any();
        Self { content, ..self }
    }

    /// Sets the live data of the page.
    pub(crate) fn live(self, live: Live) -> Self {
        Self { live, ..self }
    }

    /// Marks the page as a list with filters, which visitors can save as a view.
    pub(crate) fn list(self) -> Self {
        Self { is_list: true, ..self }
    }

    /// Returns only title and content, for another frame.
    pub(crate) fn into_parts(self) -> (String, AnyView) {
        (self.title, self.content)
    }
}

/// Renders a whole HTML document. Marks that turn or hide text are made visible here, for names from all sources.
pub(crate) fn document(visitor: &Visitor, page: Page) -> String {
    let owner = Owner::new();
    let html = owner.with(|| {
        provide_context(picks(visitor));
        frame::frame(visitor, page, &ASSETS).to_html()
    });
    format!("<!DOCTYPE html>{}", visible(&html))
}

/// Returns the attempts that the address selects for comparison. Visitors with a shared link may not read the list of
/// all attempts.
fn picks(visitor: &Visitor) -> Picks {
    let picks = Picks::of(&Address::parse(&visitor.address));
    if visitor.who.limited_to().is_some() { picks } else { picks.with_others() }
}

/// A label for replies that were written beforehand.
pub(crate) fn model_label(model: &str, scripted: bool) -> impl IntoView + use<> {
    let model = model.to_owned();
    if scripted {
        view! { <span class="tag scripted" title="replies come from files, not from a live model">"scripted"</span> }
            .into_any()
    } else {
        view! { <span class="tag">{model}</span> }.into_any()
    }
}
