//! Leptos pages.
