//! How types describe themselves that are written as a text and are none: what derives cannot see.

use std::borrow::Cow;

use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::api::Target;
use crate::artifact::ArtifactHash;
use crate::capability::{ComputeCapability, Label};
use crate::schedule::Window;
use crate::task::Dim;

fn of(kind: Type, about: &str, example: Option<&str>) -> Schema {
    let object = ObjectBuilder::new().schema_type(SchemaType::Type(kind)).description(Some(about));
    Schema::Object(object.examples(example).build())
}

macro_rules! text {
    ($($type:ty, $name:literal, $about:literal, $example:literal;)*) => {
        $(
            impl PartialSchema for $type {
                fn schema() -> RefOr<Schema> {
                    of(Type::String, $about, Some($example)).into()
                }
            }

            impl ToSchema for $type {
                fn name() -> Cow<'static, str> {
                    Cow::Borrowed($name)
                }
            }
        )*
    };
}

text! {
    ArtifactHash, "ArtifactHash", "The blake3 hash of a blob, as 64 lower-case hexadecimal digits.",
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    Target, "Target", "A campaign, a run, or an attempt of a run.", "run_0123456789abcdef0123456789abcdef/3";
    ComputeCapability, "ComputeCapability", "Compute capability of a GPU.", "9.0";
    Label, "Label", "A label of a machine.", "rack=7";
    Window, "Window", "A daily window; one whose end is before its begin goes over midnight.", "20:00-07:30";
}

impl PartialSchema for Dim {
    fn schema() -> RefOr<Schema> {
        let number = of(Type::Integer, "A fixed extent.", None);
        let name = of(Type::String, "The name of an entry of `dims`.", None);
        Schema::OneOf(OneOfBuilder::new().item(number).item(name).build()).into()
    }
}

impl ToSchema for Dim {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Dim")
    }
}
