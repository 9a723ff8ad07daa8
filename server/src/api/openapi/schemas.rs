//! Schemas of types, each once, by name.

use std::collections::BTreeMap;

use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ArrayBuilder, ObjectBuilder, Ref, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The types that are registered so far.
#[derive(Default)]
pub(super) struct Schemas(BTreeMap<String, RefOr<Schema>>);

impl Schemas {
    /// Registers a type with its components, and returns a reference by name.
    pub(super) fn of<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let name = T::name().into_owned();
        if !self.0.contains_key(&name) {
            let mut inner = Vec::new();
            T::schemas(&mut inner);
            self.0.insert(name.clone(), T::schema());
            for (name, schema) in inner {
                self.0.entry(name).or_insert(schema);
            }
        }
        Ref::from_schema_name(name).into()
    }

    /// Returns the schema of a page of these.
    pub(super) fn page_of<T: ToSchema>(&mut self) -> RefOr<Schema> {
        let items = self.of::<T>();
        let next = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .description(Some("Value of `before` for the following page; null at the end."));
        let page = ObjectBuilder::new()
            .property("items", ArrayBuilder::new().items(items))
            .property("next", next)
            .required("items")
            .required("next");
        RefOr::T(Schema::Object(page.build()))
    }

    /// Returns the types, by name.
    pub(super) fn into_components(self) -> BTreeMap<String, RefOr<Schema>> {
        self.0
    }
}

/// Returns the schema of a text.
pub(super) fn text() -> RefOr<Schema> {
    String::schema()
}

/// Returns the schema of a list of any objects.
pub(super) fn objects() -> RefOr<Schema> {
    ArrayBuilder::new().items(object()).into()
}

/// Returns the schema of any object.
pub(super) fn object() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::Object).into()
}
