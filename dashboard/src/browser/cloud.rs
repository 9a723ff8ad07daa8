//! Reads packed points and draws them. `GET /attempts/points` documents the layout of the bytes.

use js_sys::{ArrayBuffer, Uint8Array};
use leptos::prelude::{document, window};
use wasm_bindgen::{Clamped, JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData, Response};

const HEADER_BYTES: usize = 32;
const POINT_BYTES: usize = 16;
const MAGIC: &[u8] = b"NSPT";
/// Milliseconds of each unit of time.
const UNIT_MS: f64 = 100.0;
/// Indices of the correct outcomes, in the order of the API: not faster, faster.
const RIGHT: [u8; 2] = [9, 10];
/// Margins: at the left, for the labels, and at the other sides.
const LEFT: f64 = 48.0;
const EDGE: f64 = 10.0;
/// Labels of the axis.
const TICKS: [f64; 13] = [0.01, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 1000.0];

/// The packed points of an answer.
pub(crate) struct Cloud {
    bytes: Vec<u8>,
    base_ms: f64,
}

impl Cloud {
    /// Parses the bytes. Returns `None` when the layout is invalid.
    pub(crate) async fn read(address: &str) -> Option<Self> {
        let answer = JsFuture::from(window().fetch_with_str(address)).await.ok()?;
        let response: Response = answer.dyn_into().ok()?;
        if !response.ok() {
            return None;
        }
        let buffer: ArrayBuffer = JsFuture::from(response.array_buffer().ok()?).await.ok()?.dyn_into().ok()?;
        Self::from_bytes(Uint8Array::new(&buffer).to_vec())
    }

    #[expect(clippy::cast_precision_loss, reason = "a moment in milliseconds has fewer digits than a float")]
    fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let base = bytes.get(8..16)?.try_into().ok().map(i64::from_le_bytes)?;
        let is_known = bytes.starts_with(MAGIC) && bytes.get(4..8) == Some(&1_u32.to_le_bytes()[..]);
        (is_known && bytes.len() >= HEADER_BYTES).then_some(Self { bytes, base_ms: base as f64 })
    }

    /// Returns the number of points.
    pub(crate) fn len(&self) -> usize {
        (self.bytes.len() - HEADER_BYTES) / POINT_BYTES
    }

    /// Returns the time, the speedup, the outcome and whether the point is the best of its run.
    fn points(&self) -> impl Iterator<Item = (f64, f32, u8, bool)> + '_ {
        self.bytes.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(POINT_BYTES).map(|point| {
            let four = |at: usize| [point[at], point[at + 1], point[at + 2], point[at + 3]];
            let at = f64::from(u32::from_le_bytes(four(4))) * UNIT_MS;
            (at, f32::from_le_bytes(four(8)), point[14], point[15] & 16 != 0)
        })
    }

    /// Returns the start of the first attempt.
    pub(crate) fn begin(&self) -> String {
        if self.len() == 0 { String::new() } else { date(self.base_ms) }
    }

    /// Returns the start of the last attempt.
    pub(crate) fn end(&self) -> String {
        if self.len() == 0 { String::new() } else { date(self.base_ms + self.length_ms()) }
    }

    fn length_ms(&self) -> f64 {
        self.points().map(|(at, ..)| at).fold(0.0, f64::max)
    }
}

fn date(at_ms: f64) -> String {
    let iso: String = js_sys::Date::new(&JsValue::from_f64(at_ms)).to_iso_string().into();
    iso.get(..16).unwrap_or(&iso).replace('T', " ")
}

type Colour = [u8; 4];

/// Draws the points. On an error the canvas stays empty; the list on the page has the same data.
pub(crate) fn draw(canvas: &HtmlCanvasElement, cloud: &Cloud) {
    let context = canvas.get_context("2d").ok().flatten().and_then(|context| context.dyn_into().ok());
    let Some(context): Option<CanvasRenderingContext2d> = context else { return };
    let (width, height) = (f64::from(canvas.width()), f64::from(canvas.height()));
    let speedups = || cloud.points().map(|(_, speedup, ..)| f64::from(speedup)).filter(|s| s.is_finite() && *s > 0.0);
    let low = speedups().fold(0.5, f64::min).max(1e-3).ln();
    let high = speedups().fold(2.0, f64::max).min(1e6).ln();
    let length = cloud.length_ms().max(1.0);
    let place_y = |speedup: f64| {
        let share = (speedup.ln() - low) / (high - low);
        (height - 3.0 * EDGE) - share.clamp(0.0, 1.0) * (height - 4.0 * EDGE)
    };
    let place_x = |at: f64| LEFT + at / length * (width - LEFT - EDGE);
    let colours = ["--quiet", "--accent", "--good", "--bad"].map(colour);
    let Some(pixels) = paint(cloud, (width, height), place_x, place_y, colours) else { return };
    let size = (canvas.width(), canvas.height());
    let image = ImageData::new_with_u8_clamped_array_and_sh(Clamped(&pixels), size.0, size.1);
    if let Ok(image) = image {
        let _ = context.put_image_data(&image, 0.0, 0.0);
    }
    context.set_fill_style_str(&text_of("--quiet"));
    context.set_font("13px system-ui, sans-serif");
    for tick in TICKS.into_iter().filter(|tick| (low..=high).contains(&tick.ln())) {
        let at = place_y(tick);
        let _ = context.fill_text(&format!("{tick}×"), 2.0, at + 4.0);
        context.fill_rect(LEFT - 6.0, at, if tick.to_bits() == 1.0_f64.to_bits() { width } else { 4.0 }, 1.0);
    }
}

/// Draws all dots into one buffer. For a hundred thousand dots this is ten times as fast as one call for each.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "places are within the picture")]
fn paint(
    cloud: &Cloud,
    (width, height): (f64, f64),
    place_x: impl Fn(f64) -> f64,
    place_y: impl Fn(f64) -> f64,
    [quiet, accent, good, bad]: [Colour; 4],
) -> Option<Vec<u8>> {
    let (columns, rows) = (width as usize, height as usize);
    let mut pixels = vec![0_u8; columns.checked_mul(rows)?.checked_mul(4)?];
    for (at, speedup, outcome, best) in cloud.points() {
        let speedup = f64::from(speedup);
        let has_speedup = speedup.is_finite() && speedup > 0.0;
        let y = if has_speedup { place_y(speedup) } else { height - EDGE };
        let dot = match (has_speedup, best, RIGHT.contains(&outcome)) {
            (_, true, _) => good,
            (true, false, true) => accent,
            (true, false, false) => quiet,
            (false, ..) => bad,
        };
        let size = if best { 4 } else { 2 };
        let (left, top) = (place_x(at) as usize, y as usize);
        for row in top..(top + size).min(rows) {
            for column in left..(left + size).min(columns) {
                let offset = (row * columns + column) * 4;
                if let Some(pixel) = pixels.get_mut(offset..offset + 4) {
                    pixel.copy_from_slice(&dot);
                }
            }
        }
    }
    Some(pixels)
}

/// Returns the current value of a colour of the stylesheet.
fn text_of(name: &str) -> String {
    let root = document().document_element();
    let style = root.and_then(|root| window().get_computed_style(&root).ok().flatten());
    style.and_then(|style| style.get_property_value(name).ok()).unwrap_or_default().trim().to_owned()
}

/// Parses `rgb(r, g, b)`. The stylesheet registers its colours, so that browsers return them in this form.
fn colour(name: &str) -> Colour {
    let text = text_of(name);
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok());
    let mut part = || parts.next().unwrap_or(128);
    [part(), part(), part(), 255]
}
