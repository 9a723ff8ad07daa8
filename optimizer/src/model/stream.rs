//! A reply as it arrives: bytes to events to text, with a limit on every wait and every size.

use std::time::Duration;

use bytes::Bytes;
use eventsource_stream::{EventStreamError, Eventsource};
use futures::{Stream, StreamExt};
use nightshift_protocol::model_call::StopCause;
use serde_json::Value;
use tokio::time::Instant;

use super::{FunctionCall, MAX_REASONING_BYTES, MAX_REPLY_BYTES, TokenUsage};

/// Most bytes of one reply on the wire, with its framing and with reasoning beyond what is kept.
pub(super) const MAX_WIRE_BYTES: usize = 64 * 1024 * 1024;

/// Most bytes of one line of an event stream.
pub(super) const MAX_LINE_BYTES: usize = 4 * 1024 * 1024;

/// A reply in the making.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) text: String,
    /// Calls of functions, each with its place in the reply.
    pub(super) calls: Vec<(u64, FunctionCall)>,
    /// The reasoning, up to its limit.
    reasoning: String,
    /// Whether reasoning was left out.
    reasoning_clipped: bool,
    pub(super) tokens: TokenUsage,
    pub(super) stop: Option<StopCause>,
    /// The format's own end marker was seen.
    pub(super) ended: bool,
}

impl Draft {
    /// Adds text within the limit.
    pub(super) fn push(&mut self, text: &str) -> Result<(), Trouble> {
        if self.text.len() + text.len() > MAX_REPLY_BYTES {
            return Err(Trouble::TooLarge { what: "of text", limit_bytes: MAX_REPLY_BYTES });
        }
        self.text.push_str(text);
        Ok(())
    }

    /// Adds reasoning; what is beyond the limit is left out, because no later step reads it.
    pub(super) fn push_reasoning(&mut self, text: &str) {
        if self.reasoning_clipped {
            return;
        }
        let end = text.floor_char_boundary(MAX_REASONING_BYTES - self.reasoning.len());
        self.reasoning.push_str(text.get(..end).unwrap_or_default());
        self.reasoning_clipped = end < text.len();
    }

    /// Begins another part of the reasoning.
    pub(super) fn separate_reasoning(&mut self) {
        if !self.reasoning.is_empty() {
            self.push_reasoning("\n\n");
        }
    }

    /// Whether any reasoning came.
    pub(super) fn has_reasoning(&self) -> bool {
        !self.reasoning.is_empty()
    }

    /// Takes the reasoning, with a note where it was cut; none when the endpoint gave none.
    pub(super) fn take_reasoning(&mut self) -> Option<String> {
        let mut reasoning = std::mem::take(&mut self.reasoning);
        if self.reasoning_clipped {
            reasoning = format!("{reasoning}\n\n[the rest is left out: the limit is {MAX_REASONING_BYTES} bytes]\n");
        }
        Some(reasoning).filter(|reasoning| !reasoning.trim().is_empty())
    }
}

/// What a wire format makes of the events of a reply.
pub(super) trait Reader: Send {
    /// Takes the data of one event.
    fn event(&mut self, draft: &mut Draft, data: &str) -> Result<(), Trouble>;

    /// Takes a reply that came whole, from a server that does not stream.
    fn whole(&mut self, draft: &mut Draft, body: &str) -> Result<(), Trouble>;
}

/// Why a reply could not be read to its end, before it is known from which endpoint it came.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Not what the format says.
    Malformed { message: String, excerpt: String },
    /// The provider reports an error within the reply.
    Provider(Value),
    /// The stream ended, or the connection broke, before the end.
    Truncated { bytes: usize, message: String },
    /// A wait was too long.
    Timeout { phase: &'static str, limit: Duration },
    /// A size was too large.
    TooLarge { what: &'static str, limit_bytes: usize },
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Trouble {}

/// Limits on the waits for the pieces of a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waits {
    pub(super) first_by: Instant,
    pub(super) first: Duration,
    pub(super) idle: Duration,
}

/// Reads an event stream until the end marker, the end of the stream, or trouble.
pub(super) async fn read_events<S, E>(bytes: S, waits: Waits, reader: &mut dyn Reader) -> Result<Draft, Trouble>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
    E: std::fmt::Display + Send,
{
    let mut draft = Draft::default();
    let mut events = Box::pin(whole_lines(bytes, waits).eventsource());
    while !draft.ended {
        match events.next().await {
            Some(Ok(event)) => reader.event(&mut draft, &event.data)?,
            Some(Err(EventStreamError::Transport(trouble))) => return Err(at(trouble, &draft)),
            // A character cut in two at the end is a symptom of the end, not a foreign encoding.
            Some(Err(EventStreamError::Utf8(error))) if error.utf8_error().error_len().is_none() => break,
            Some(Err(EventStreamError::Utf8(error))) => {
                return Err(Trouble::Malformed { message: error.to_string(), excerpt: String::new() });
            }
            Some(Err(EventStreamError::Parser(error))) => {
                return Err(Trouble::Malformed { message: error.to_string(), excerpt: String::new() });
            }
            None => break,
        }
    }
    // Some servers leave the end marker out; the reason why the model stopped is as good a proof that this is all.
    if draft.ended || draft.stop.is_some() {
        Ok(draft)
    } else {
        Err(Trouble::Truncated { bytes: draft.text.len(), message: "the end marker never came".to_owned() })
    }
}

/// Reads a whole body within the limits.
pub(super) async fn read_body<S, E>(bytes: S, waits: Waits, limit_bytes: usize) -> Result<Vec<u8>, Trouble>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
    E: std::fmt::Display + Send,
{
    let mut body = Vec::new();
    let mut pieces = Box::pin(timed(bytes, waits));
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if body.len() + piece.len() > limit_bytes {
            return Err(Trouble::TooLarge { what: "in its body", limit_bytes });
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

fn at(trouble: Trouble, draft: &Draft) -> Trouble {
    match trouble {
        Trouble::Truncated { message, .. } => Trouble::Truncated { bytes: draft.text.len(), message },
        other => other,
    }
}

/// The bytes with a limit on each wait.
fn timed<S, E>(bytes: S, waits: Waits) -> impl Stream<Item = Result<Bytes, Trouble>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
    E: std::fmt::Display + Send,
{
    futures::stream::unfold(Some((bytes, true)), move |state| async move {
        let (mut bytes, first) = state?;
        let (deadline, phase, limit) = if first {
            (waits.first_by, "time for the first byte", waits.first)
        } else {
            (Instant::now() + waits.idle, "time between two pieces of the reply", waits.idle)
        };
        match tokio::time::timeout_at(deadline, bytes.next()).await {
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some((bytes, false)))),
            Ok(Some(Err(error))) => {
                Some((Err(Trouble::Truncated { bytes: 0, message: format!("the connection broke: {error}") }), None))
            }
            Ok(None) => None,
            Err(_) => Some((Err(Trouble::Timeout { phase, limit }), None)),
        }
    })
}

/// The bytes in whole lines, with limits on waits and sizes. The parser behind it looks at an unfinished line anew with
/// every piece: holding such a line back keeps the work proportional to the bytes.
fn whole_lines<S, E>(bytes: S, waits: Waits) -> impl Stream<Item = Result<Bytes, Trouble>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
    E: std::fmt::Display + Send,
{
    let lines = Lines { held: Vec::new(), total: 0 };
    futures::stream::unfold(Some((Box::pin(timed(bytes, waits)), lines)), |state| async move {
        let (mut pieces, mut lines) = state?;
        loop {
            match pieces.next().await {
                Some(Ok(piece)) => match lines.take(&piece) {
                    Ok(None) => {}
                    Ok(Some(ready)) => return Some((Ok(ready), Some((pieces, lines)))),
                    Err(trouble) => return Some((Err(trouble), None)),
                },
                Some(Err(trouble)) => return Some((Err(trouble), None)),
                None if lines.held.is_empty() => return None,
                None => return Some((Ok(Bytes::from(lines.held)), None)),
            }
        }
    })
}

struct Lines {
    /// The beginning of a line whose end has not come yet.
    held: Vec<u8>,
    total: usize,
}

impl Lines {
    /// Takes a piece and gives the lines that it completes.
    fn take(&mut self, piece: &[u8]) -> Result<Option<Bytes>, Trouble> {
        self.total += piece.len();
        if self.total > MAX_WIRE_BYTES {
            return Err(Trouble::TooLarge { what: "on the wire", limit_bytes: MAX_WIRE_BYTES });
        }
        let (ends, begins) = match piece.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => piece.split_at(last + 1),
            None => (&[][..], piece),
        };
        let mut ready = Vec::new();
        if !ends.is_empty() {
            ready = std::mem::take(&mut self.held);
            ready.extend_from_slice(ends);
        }
        self.held.extend_from_slice(begins);
        if self.held.len() > MAX_LINE_BYTES {
            return Err(Trouble::TooLarge { what: "in one line", limit_bytes: MAX_LINE_BYTES });
        }
        Ok((!ready.is_empty()).then(|| Bytes::from(ready)))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
mod tests {
    use super::super::endpoint::Timeouts;
    use super::super::{anthropic, chat_completions, responses};
    use super::*;

    const CHAT: &str = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
        ": a comment\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\r\n\r\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Grüße, \"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Welt 🌙\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":5}}\n\n",
        "data: [DONE]\n\n",
    );

    const MESSAGES: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,",
        "\"cache_read_input_tokens\":2,\"output_tokens\":1}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":",
        "{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":",
        "{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":",
        "{\"type\":\"text_delta\",\"text\":\"Grüße, \"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":",
        "{\"type\":\"text_delta\",\"text\":\"Welt 🌙\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},",
        "\"usage\":{\"output_tokens\":5}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );

    const RESPONSES: &str = concat!(
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\"}}\n\n",
        "event: response.reasoning_summary_part.added\ndata: {\"type\":\"response.reasoning_summary_part.added\"}\n\n",
        "event: response.reasoning_summary_text.delta\ndata: {\"type\":\"response.reasoning_summary_text.delta\",",
        "\"delta\":\"hm\"}\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Grüße, \"}\n\n",
        ": keep-alive\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Welt 🌙\"}\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",",
        "\"error\":null,\"usage\":{\"input_tokens\":12,\"output_tokens\":5}}}\n\n",
    );

    fn waits() -> Waits {
        let long = Duration::from_mins(1);
        Waits { first_by: Instant::now() + long, first: long, idle: long }
    }

    async fn read(pieces: Vec<&[u8]>, reader: &mut dyn Reader) -> Result<Draft, Trouble> {
        let pieces: Vec<Result<Bytes, std::io::Error>> =
            pieces.into_iter().map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        read_events(futures::stream::iter(pieces), waits(), reader).await
    }

    async fn read_chat(pieces: Vec<&[u8]>) -> Result<Draft, Trouble> {
        read(pieces, &mut chat_completions::ReplyReader).await
    }

    async fn read_messages(pieces: Vec<&[u8]>) -> Result<Draft, Trouble> {
        read(pieces, &mut anthropic::ReplyReader).await
    }

    async fn read_responses(pieces: Vec<&[u8]>) -> Result<Draft, Trouble> {
        read(pieces, &mut responses::ReplyReader).await
    }

    fn expected() -> Draft {
        Draft {
            text: "Grüße, Welt 🌙".to_owned(),
            calls: Vec::new(),
            reasoning: "hm".to_owned(),
            reasoning_clipped: false,
            tokens: TokenUsage { input: Some(12), output: Some(5), ..TokenUsage::default() },
            stop: Some(StopCause::End),
            ended: true,
        }
    }

    #[tokio::test]
    async fn a_reply_may_be_split_at_every_byte() {
        for split in 0..=CHAT.len() {
            let (left, right) = CHAT.as_bytes().split_at(split);
            assert_eq!(read_chat(vec![left, right]).await.unwrap(), expected(), "chat, split at {split}");
        }
        for split in 0..=MESSAGES.len() {
            let (left, right) = MESSAGES.as_bytes().split_at(split);
            let mut expected = expected();
            expected.tokens.cached_input = Some(2);
            assert_eq!(read_messages(vec![left, right]).await.unwrap(), expected, "messages, split at {split}");
        }
        for split in 0..=RESPONSES.len() {
            let (left, right) = RESPONSES.as_bytes().split_at(split);
            assert_eq!(read_responses(vec![left, right]).await.unwrap(), expected(), "responses, split at {split}");
        }
    }

    #[tokio::test]
    async fn a_reply_may_come_byte_by_byte() {
        assert_eq!(read_chat(CHAT.as_bytes().chunks(1).collect()).await.unwrap(), expected());
        assert_eq!(read_responses(RESPONSES.as_bytes().chunks(1).collect()).await.unwrap(), expected());
        assert_eq!(read_messages(MESSAGES.as_bytes().chunks(1).collect()).await.unwrap().text, expected().text);
    }

    #[tokio::test]
    async fn a_reply_that_ends_early_is_truncated_and_nothing_else() {
        let stop_at = CHAT.find("\"finish_reason\":\"stop\"").unwrap();
        for end in 0..stop_at {
            let result = read_chat(vec![&CHAT.as_bytes()[..end]]).await;
            assert!(matches!(result, Err(Trouble::Truncated { .. })), "chat, ended at {end}: {result:?}");
        }
        let stop_at = MESSAGES.find("\"stop_reason\"").unwrap();
        for end in 0..stop_at {
            let result = read_messages(vec![&MESSAGES.as_bytes()[..end]]).await;
            assert!(matches!(result, Err(Trouble::Truncated { .. })), "messages, ended at {end}: {result:?}");
        }
        for end in 0..RESPONSES.len() - 1 {
            let result = read_responses(vec![&RESPONSES.as_bytes()[..end]]).await;
            assert!(matches!(result, Err(Trouble::Truncated { .. })), "responses, ended at {end}: {result:?}");
        }
    }

    #[tokio::test]
    async fn a_broken_connection_says_how_much_had_arrived() {
        let pieces = vec![
            Ok(Bytes::from("data: {\"choices\":[{\"delta\":{\"content\":\"abc\"}}]}\n\n")),
            Err(std::io::Error::other("reset")),
        ];
        let result = read_events(futures::stream::iter(pieces), waits(), &mut chat_completions::ReplyReader).await;
        let Err(Trouble::Truncated { bytes: 3, message }) = result else { panic!("{result:?}") };
        assert!(message.contains("reset"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_left_after_the_first_byte_limit() {
        let silent = futures::stream::pending::<Result<Bytes, std::io::Error>>();
        let began = Instant::now();
        let result = read_events(silent, waits(), &mut chat_completions::ReplyReader).await;
        assert!(matches!(result, Err(Trouble::Timeout { phase: "time for the first byte", .. })), "{result:?}");
        assert_eq!(began.elapsed(), Duration::from_mins(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_server_is_left_after_the_idle_limit() {
        let first = futures::stream::iter(vec![Ok::<_, std::io::Error>(Bytes::from(": hello\n\n"))]);
        let stalled = first.chain(futures::stream::pending());
        let result = read_events(stalled, waits(), &mut anthropic::ReplyReader).await;
        let Err(Trouble::Timeout { phase, .. }) = result else { panic!("{result:?}") };
        assert_eq!(phase, "time between two pieces of the reply");
    }

    #[tokio::test(start_paused = true)]
    async fn pings_comments_and_reasoning_keep_a_silent_model_alive() {
        let limits = Timeouts::default();
        let idle = Duration::from_millis(limits.idle_ms);
        let signs: [(&str, &mut dyn Reader, &str); 3] = [
            (": keep-alive\n\n", &mut chat_completions::ReplyReader, CHAT),
            ("event: ping\ndata: {\"type\":\"ping\"}\n\n", &mut anthropic::ReplyReader, MESSAGES),
            (
                "data: {\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"hm\"}\n\n",
                &mut responses::ReplyReader,
                RESPONSES,
            ),
        ];
        for (sign, reader, reply) in signs {
            let began = Instant::now();
            let pieces =
                std::iter::repeat_n(sign, 2).chain([reply]).map(|piece| Bytes::copy_from_slice(piece.as_bytes()));
            let slow = futures::stream::iter(pieces).then(|piece| async move {
                tokio::time::sleep(idle * 9 / 10).await;
                Ok::<_, std::io::Error>(piece)
            });
            let first = Duration::from_millis(limits.first_byte_ms);
            let waits = Waits { first_by: began + first, first, idle };
            let draft = read_events(Box::pin(slow), waits, reader).await.unwrap();
            assert_eq!(draft.text, expected().text);
            assert!(began.elapsed() > first, "the waits together are longer than each limit");
        }
    }

    #[tokio::test]
    async fn an_endless_line_is_stopped() {
        let piece = vec![b'x'; 1024 * 1024];
        let result = read_chat(vec![&piece; 6]).await;
        assert!(matches!(result, Err(Trouble::TooLarge { what: "in one line", .. })), "{result:?}");
    }

    #[tokio::test]
    async fn an_endless_text_is_stopped() {
        let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(100_000));
        let result = read_chat(vec![event.as_bytes(); 30]).await;
        assert!(matches!(result, Err(Trouble::TooLarge { what: "of text", .. })), "{result:?}");
    }

    #[tokio::test]
    async fn what_is_no_json_is_malformed() {
        let result = read_chat(vec![b"data: {\"choices\": [\n\n"]).await;
        assert!(matches!(result, Err(Trouble::Malformed { .. })), "{result:?}");
        let result = read_messages(vec![b"data: 17\n\n"]).await;
        assert!(matches!(result, Err(Trouble::Malformed { .. })), "{result:?}");
        let result = read_chat(vec![b"data: {\"unexpected\": true}\n\n"]).await;
        assert!(matches!(result, Err(Trouble::Malformed { .. })), "{result:?}");
        let result = read_chat(vec![b"data: \xff\xfe\n\n"]).await;
        assert!(matches!(result, Err(Trouble::Malformed { .. })), "{result:?}");
    }
}
