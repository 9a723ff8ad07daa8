//! Ids: a text prefix that names the noun, and a UUIDv7 as 32 hexadecimal digits (`run_0198…`).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Digits of the random end of an id that tables and messages show instead of the whole.
pub const SHORT_ID_DIGITS: usize = 8;

/// A text that is no id of the wanted noun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {noun} id: expected `{prefix}` followed by 32 hexadecimal digits")]
pub struct InvalidId {
    /// What was given.
    pub text: String,
    /// The noun with its article, for the message.
    pub noun: &'static str,
    /// The prefix that was expected.
    pub prefix: &'static str,
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $noun:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct $name(String);

        impl $name {
            /// The text that every id of this noun begins with.
            pub const PREFIX: &'static str = $prefix;

            /// The id that carries this UUID.
            #[must_use]
            pub fn from_uuid(uuid: Uuid) -> Self {
                Self(format!("{}{}", $prefix, uuid.simple()))
            }

            /// The whole id.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The last digits, which are random: short enough for a table, accepted wherever an id is.
            #[must_use]
            pub fn short(&self) -> &str {
                self.0.get(self.0.len().saturating_sub(SHORT_ID_DIGITS)..).unwrap_or(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let digits = text.strip_prefix($prefix);
                match digits {
                    Some(digits) if digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                        Ok(Self(text.to_ascii_lowercase()))
                    }
                    _ => Err(InvalidId { text: text.to_owned(), noun: $noun, prefix: $prefix }),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id_type!(
    /// A campaign.
    CampaignId, "cmp_", "a campaign"
);
id_type!(
    /// A run: one task in one campaign.
    RunId, "run_", "a run"
);
id_type!(
    /// A step of a run.
    StepId, "stp_", "a step"
);
id_type!(
    /// A worker process; a restarted worker is a new one.
    WorkerId, "wrk_", "a worker"
);
id_type!(
    /// A life of a server process; a restarted server is a new one.
    ServerId, "srv_", "a server"
);
id_type!(
    /// An API token.
    TokenId, "tok_", "a token"
);
id_type!(
    /// A note that a person wrote.
    RemarkId, "nte_", "a note"
);
id_type!(
    /// A page with its filters, under a name.
    SavedViewId, "viw_", "a saved view"
);
id_type!(
    /// A public link to one campaign or one run.
    ShareId, "shr_", "a link"
);
id_type!(
    /// An address that receives events.
    WebhookId, "whk_", "a webhook"
);
id_type!(
    /// The delivery of one event to one address.
    DeliveryId, "dlv_", "a delivery"
);
id_type!(
    /// An open model call that an outside agent may answer.
    RequestId, "req_", "a request"
);
id_type!(
    /// A hand-over of a campaign to a machine without a network.
    HandoverId, "hnd_", "a hand-over"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_the_way_through_text() {
        let id = RunId::from_uuid(Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_dead_beef));
        assert_eq!(id.as_str().parse::<RunId>().as_ref(), Ok(&id));
        assert_eq!(id.short(), "deadbeef");
    }

    #[test]
    fn an_id_of_another_noun_is_refused() {
        let id = StepId::from_uuid(Uuid::from_u128(7));
        assert!(id.as_str().parse::<RunId>().is_err());
        assert!("run_xyz".parse::<RunId>().is_err());
    }
}
