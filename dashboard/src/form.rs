//! Forms that are calls of the API: rendered here, sent by `browser/form.rs` with the rights of the visitor.

use leptos::prelude::*;

use crate::address::Address;

/// A form that is a call.
pub(crate) struct Form {
    call: String,
    key: String,
    done: &'static str,
    shows: Option<&'static str>,
    before: Option<String>,
    next: Option<String>,
    link: Option<&'static str>,
    /// Address of the form without scripts.
    action: Option<String>,
    with: Vec<AnyView>,
}

impl Form {
    /// A call: `POST`, `PUT` or `DELETE`, and its path below `/api/v1`.
    pub(crate) fn new(method: &str, path: &str, done: &'static str) -> Self {
        let call = format!("{method} /api/v1{path}");
        Self {
            key: call.clone(),
            call,
            done,
            shows: None,
            before: None,
            next: None,
            link: None,
            action: None,
            with: Vec::new(),
        }
    }

    /// Tells it from another form with the same call.
    pub(crate) fn key(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// The text of the answer that is shown this once.
    pub(crate) fn shows(self, name: &'static str) -> Self {
        Self { shows: Some(name), ..self }
    }

    /// Sets the prefix of that text, such as a path of this server.
    pub(crate) fn before(self, text: String) -> Self {
        Self { before: Some(text), ..self }
    }

    /// Sets the page to open after success.
    pub(crate) fn next(self, path: impl Into<String>) -> Self {
        Self { next: Some(path.into()), ..self }
    }

    /// Marks the form as the sign-in form. `deed` says what to do with an opened link: `take` it, `ask` first, or `keep`
    /// the session that can read the page.
    pub(crate) fn link(self, deed: &'static str) -> Self {
        Self { link: Some(deed), ..self }
    }

    /// Makes the form work without scripts: the browser sends it to a page of this server.
    pub(crate) fn action(self, page: String) -> Self {
        Self { action: Some(page), ..self }
    }

    /// A field that the visitor does not see.
    pub(crate) fn with(mut self, field: AnyView) -> Self {
        self.with.push(field);
        self
    }

    /// The form around its fields.
    pub(crate) fn around(self, fields: AnyView) -> AnyView {
        let class = if self.action.is_some() { "call" } else { "call needs-script" };
        view! {
            <form
                class=class
                method="post"
                action=self.action
                data-call=self.call
                data-key=self.key
                data-done=self.done
                data-shows=self.shows
                data-before=self.before
                data-next=self.next
                data-link=self.link
            >
                {self.with}
                {fields}
                <p class="said" role="status"></p>
            </form>
        }
        .into_any()
    }

    /// The form with a button alone.
    pub(crate) fn button(self, label: impl Into<String>) -> AnyView {
        let label = label.into();
        self.around(view! { <button type="submit">{label}</button> }.into_any())
    }

    /// Renders a form that asks for confirmation of an irreversible action.
    pub(crate) fn asking(self, label: &'static str, question: impl Into<String>, yes: &'static str) -> AnyView {
        self.asking_or(label, question, yes, "Keep it")
    }

    /// Like [`Self::asking`], with another label of the button that cancels.
    pub(crate) fn asking_or(
        self,
        label: &'static str,
        question: impl Into<String>,
        yes: &'static str,
        no: &'static str,
    ) -> AnyView {
        let question = question.into();
        self.folded(
            label,
            view! {
                <p>{question}</p>
                <div class="buttons">
                    <button type="submit" class="strong danger">{yes}</button>
                    <button type="button" data-close="">{no}</button>
                </div>
            }
            .into_any(),
        )
    }

    /// Renders a form that is collapsed until the visitor opens it. Escape closes it.
    pub(crate) fn folded(self, label: impl Into<String>, fields: AnyView) -> AnyView {
        let (label, key) = (label.into(), format!("{} folded", self.key));
        let form = self.around(fields);
        view! { <details class="asks needs-script" data-key=key><summary>{label}</summary>{form}</details> }.into_any()
    }
}

/// A member that the visitor does not see: a text.
pub(crate) fn hidden(name: &'static str, value: impl Into<String>) -> AnyView {
    view! { <input type="hidden" name=name value=value.into() /> }.into_any()
}

/// Renders hidden fields for the parameters that a filter keeps, because its form sends only its own fields.
pub(crate) fn kept(address: &Address, names: &[&'static str]) -> Vec<AnyView> {
    names.iter().filter_map(|name| Some(hidden(name, address.get(name)?))).collect()
}

/// The same: anything else, as JSON.
pub(crate) fn hidden_json(name: &'static str, json: impl Into<String>) -> AnyView {
    view! { <input type="hidden" name=name value=json.into() data-kind="json" /> }.into_any()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_taken_back_is_asked_and_can_be_left() {
        let form = Form::new("POST", "/runs/run_1/control", "").with(hidden("action", "cancel"));
        let html = Owner::new().with(|| form.asking_or("Cancel", "Sure?", "Cancel the run", "Keep running").to_html());
        assert!(html.contains("<details") && html.contains("data-close") && html.contains("danger"), "{html}");
        assert!(html.contains("value=\"cancel\""), "{html}");
    }

    #[test]
    fn a_filter_keeps_how_rows_are_sorted() {
        let address = Address::parse("/tasks?task=a&sort=found&order=");
        let html = Owner::new().with(|| kept(&address, &["sort", "order"]).to_html());
        assert!(html.contains("name=\"sort\"") && html.contains("value=\"found\""), "{html}");
        assert!(!html.contains("name=\"order\"") && !html.contains("name=\"task\""), "{html}");
    }

    #[test]
    fn a_form_says_what_it_calls_and_escapes_what_it_sends() {
        let html = Owner::new()
            .with(|| Form::new("PUT", "/views/1", "Saved.").around(hidden("name", "\"><script>")).to_html());
        assert!(html.contains("data-call=\"PUT /api/v1/views/1\""), "{html}");
        assert!(html.contains("role=\"status\"") && !html.contains("<script"), "{html}");
    }
}
