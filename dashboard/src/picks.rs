//! Attempts that are chosen to be compared. Their names stand in the address, so that a link, a reload and the next page
//! show the same ones as chosen, with and without scripts.

use leptos::prelude::*;
use nightshift_protocol::id::RunId;

use crate::address::Address;
use crate::format::counted;

/// Maximum number of attempts that are compared.
pub(crate) const MAX_COMPARED: usize = 12;

/// The name of the choice in the address; the API knows nothing of it.
pub(crate) const NAME: &str = "pick";

/// What an address says is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Picks {
    /// As `RUN/NUMBER`, in the order in which they were chosen.
    names: Vec<String>,
    /// The page with nothing chosen.
    none: String,
    /// Where others can be chosen besides, for those who may go there.
    others: Option<String>,
}

impl Picks {
    /// Reads an address; what cannot be an attempt, and what is too much, is left out.
    pub(crate) fn of(address: &Address) -> Self {
        let mut names: Vec<String> = Vec::new();
        for name in address.get(NAME).unwrap_or_default().split(',').filter_map(plain) {
            if names.len() < MAX_COMPARED && !names.contains(&name) {
                names.push(name);
            }
        }
        Self { names, none: address.with(NAME, None).href(), others: None }
    }

    /// Adds the link to the list of all attempts, for visitors who may read it.
    pub(crate) fn with_others(self) -> Self {
        let others = self.kept_in(&Address::parse("/attempts")).href();
        Self { others: Some(others), ..self }
    }

    /// What the address of the page says that is being rendered; nothing in a file that is no page.
    pub(crate) fn of_page() -> Self {
        use_context().unwrap_or_default()
    }

    /// An address with this choice.
    pub(crate) fn kept_in(&self, address: &Address) -> Address {
        address.with(NAME, (!self.names.is_empty()).then(|| self.joined()).as_deref())
    }

    /// The value in the address.
    pub(crate) fn joined(&self) -> String {
        self.names.join(",")
    }

    /// Returns whether this attempt is chosen.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// For the form that compares: what is chosen and has no box in its list goes with the rest.
    pub(crate) fn elsewhere(&self, listed: &[String]) -> AnyView {
        let hidden: Vec<String> = self.names.iter().filter(|name| !listed.contains(name)).cloned().collect();
        if hidden.is_empty() {
            return ().into_any();
        }
        let many = counted(u64::try_from(hidden.len()).unwrap_or(u64::MAX), "attempt", "attempts");
        let words = format!("{many} chosen that this list does not show. ");
        let none = self.none.clone();
        let hidden = hidden.into_iter().map(|name| {
            let key = name.clone();
            view! { <input type="hidden" name="a" value=name data-key=key /> }
        });
        view! {
            <p class="quiet" data-key="elsewhere">
                {words}<a href=none data-unpick="">"Choose none"</a>
            </p>
            {hidden.collect::<Vec<_>>()}
        }
        .into_any()
    }

    /// The way from one run to the attempts of all others.
    pub(crate) fn link_to_others(&self) -> AnyView {
        let others = self.others.clone();
        let link = others.map(|href| view! { " "<a href=href data-picks="">"Choose more among all attempts"</a> });
        link.into_any()
    }
}

/// The name of an attempt, written as the boxes write it.
fn plain(text: &str) -> Option<String> {
    let (run, number) = text.split_once('/')?;
    let run: RunId = run.parse().ok()?;
    let number: u32 = number.parse().ok()?;
    Some(format!("{run}/{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> String {
        format!("run_{}/{number}", "0".repeat(32))
    }

    fn of(names: &[String]) -> Picks {
        Picks::of(&Address::parse("/attempts?sort=speedup").with(NAME, Some(&names.join(","))))
    }

    #[test]
    fn an_address_keeps_what_is_chosen_in_its_order() {
        let picks = of(&[name(3), name(1)]);
        let again = Picks::of(&Address::parse(&picks.kept_in(&Address::parse("/attempts")).href()));
        assert_eq!(again.joined(), format!("{},{}", name(3), name(1)));
        assert!(again.has(&name(3)) && !again.has(&name(2)));
        assert_eq!(Picks::default().kept_in(&Address::parse("/attempts?pick=x&q=a")).href(), "/attempts?q=a");
    }

    #[test]
    fn what_is_no_attempt_twice_or_too_much_is_left_out() {
        let wild = ["../../etc/passwd".to_owned(), "run_1/2".to_owned(), name(1), name(1), String::new()];
        assert_eq!(of(&wild).joined(), name(1));
        let many: Vec<String> = (1..=20).map(name).collect();
        assert_eq!(of(&many).joined().split(',').count(), MAX_COMPARED);
    }

    #[test]
    fn what_has_no_box_in_the_list_is_compared_all_the_same_and_can_be_given_up() {
        let html = |listed: &[String]| Owner::new().with(|| of(&[name(1), name(2)]).elsewhere(listed).to_html());
        let some = html(&[name(1)]);
        assert!(some.contains(&format!("value=\"{}\"", name(2))) && !some.contains(&name(1)), "{some}");
        assert!(some.contains("1 attempt chosen") && some.contains("href=\"/attempts?sort=speedup\""), "{some}");
        assert!(!html(&[name(1), name(2)]).contains("input"));
    }
}
