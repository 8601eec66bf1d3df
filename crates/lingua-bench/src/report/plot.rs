//! Plots as SVG: bars, percentiles, latencies over time.
//!
//! Start at [`bars`], [`percentiles`] and [`over_time`]. The page's style has the colours, by
//! class.

use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;

/// Margins, with the labels of the axes.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 44.0;

/// Most grid lines.
const TICKS: f64 = 5.0;

/// Percentiles on the axis: one job in so many is slower.
const PERCENTILES: [(&str, f64); 6] = [
    ("fastest", 1.0),
    ("50 %", 2.0),
    ("90 %", 10.0),
    ("99 %", 100.0),
    ("99.9 %", 1000.0),
    ("99.99 %", 10_000.0),
];

/// Bars side by side, one for each broker.
#[derive(Debug)]
pub(super) struct PlotGroup {
    pub(super) name: String,
    pub(super) bars: Vec<f64>,
    /// The height of a dashed mark.
    pub(super) goal: Option<f64>,
}

#[derive(Debug)]
pub(super) struct PlotLine {
    /// The number of the broker.
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) is_dashed: bool,
}

/// Maps values to places on the page.
#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn at(&self, value: f64) -> f64 {
        let scale =
            |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).log10() } else { value };
        let (low, high) = (scale(self.low), scale(self.high));
        let share = (scale(value) - low) / (high - low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Latencies, from the decade of the lowest to just above the highest.
    fn of_latencies(lines: &[PlotLine]) -> Self {
        let values = || lines.iter().flat_map(|line| &line.points).map(|(_, ms)| *ms);
        let low = values().fold(f64::INFINITY, f64::min).clamp(0.001, 1000.0);
        let high = values().fold(0.0, f64::max).max(low * 2.0);
        let low = 10_f64.powf(low.log10().floor());
        Self { low, high: high * 1.15, is_log: true, from: HEIGHT - BOTTOM, to: TOP }
    }

    /// Round numbers on the axis.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let steps: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all =
                decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
            return all.filter(|tick| (self.low * 0.999..=self.high).contains(tick)).collect();
        }
        let rough = (self.high - self.low) / TICKS;
        let decade = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..).map(|n| f64::from(n) * step).take_while(|tick| *tick <= self.high).collect()
    }
}

/// Groups of bars, with values on top.
pub(super) fn bars(groups: &[PlotGroup], unit: &str) -> String {
    let values = || groups.iter().flat_map(|group| group.bars.iter().copied());
    let high = values().fold(0.0, f64::max).max(1.0) * 1.1;
    let y = Axis { low: 0.0, high, is_log: false, from: HEIGHT - BOTTOM, to: TOP };
    let mut svg = open(unit);
    grid(&mut svg, y);
    let room = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    for (number, group) in groups.iter().enumerate() {
        let start = LEFT + number as f64 * room + room * 0.1;
        let inner = room * 0.8;
        let step = inner / group.bars.len().max(1) as f64;
        // Drawn after the mark, so that they stay readable.
        let mut values = String::new();
        for (colour, value) in group.bars.iter().enumerate() {
            let (x, top, width) = (start + colour as f64 * step + 2.0, y.at(*value), step - 4.0);
            let (height, middle, shown) = (y.from - top, x + width / 2.0, shown(*value));
            let _ = write!(
                svg,
                "<rect class=\"bar c{colour}\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
                 height=\"{height:.1}\" rx=\"2\"/>"
            );
            let above = top - 5.0;
            let _ = write!(
                values,
                "<text class=\"value\" x=\"{middle:.1}\" y=\"{above:.1}\">{shown}</text>"
            );
        }
        if let Some(goal) = group.goal {
            let (y, end) = (y.at(goal), start + inner);
            let _ = write!(
                svg,
                "<line class=\"goal\" x1=\"{start:.1}\" y1=\"{y:.1}\" x2=\"{end:.1}\" \
                 y2=\"{y:.1}\"/>"
            );
        }
        svg.push_str(&values);
        let (middle, below) = (start + inner / 2.0, HEIGHT - BOTTOM + 20.0);
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{middle:.1}\" y=\"{below:.1}\">{}</text>",
            escape(&group.name)
        );
    }
    svg + "</svg>"
}

/// Latencies by percentile; the further right, the rarer.
pub(super) fn percentiles(lines: &[PlotLine]) -> String {
    let rarest = lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x).fold(100.0, f64::max);
    let x = Axis { low: 1.0, high: rarest, is_log: true, from: LEFT, to: WIDTH - RIGHT };
    let ticks = PERCENTILES.into_iter().filter(|(_, one_in)| *one_in <= rarest);
    let ticks: Vec<(f64, String)> = ticks.map(|(name, one_in)| (one_in, name.to_owned())).collect();
    lines_on(x, &ticks, lines, "of all jobs are at least as fast")
}

/// Latencies over time.
pub(super) fn over_time(lines: &[PlotLine]) -> String {
    let last = lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x).fold(0.1, f64::max);
    let x = Axis { low: 0.0, high: last, is_log: false, from: LEFT, to: WIDTH - RIGHT };
    let ticks: Vec<(f64, String)> =
        x.ticks().into_iter().map(|tick| (tick, format!("{} s", shown(tick)))).collect();
    lines_on(x, &ticks, lines, "of measuring")
}

fn lines_on(x: Axis, ticks: &[(f64, String)], lines: &[PlotLine], what: &str) -> String {
    let y = Axis::of_latencies(lines);
    let mut svg = open("ms");
    grid(&mut svg, y);
    for (tick, name) in ticks {
        let at = x.at(*tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
             <text class=\"name\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            y.from,
            y.from + 18.0,
            escape(name),
        );
    }
    let _ = write!(
        svg,
        "<text class=\"what\" x=\"{:.1}\" y=\"{:.1}\">{what}</text>",
        WIDTH - RIGHT,
        HEIGHT - 6.0
    );
    for PlotLine { colour, points, is_dashed } in lines {
        let places: Vec<String> =
            points.iter().map(|(at, ms)| format!("{:.1},{:.1}", x.at(*at), y.at(*ms))).collect();
        let dashed = if *is_dashed { " dashed" } else { "" };
        let _ = write!(
            svg,
            "<polyline class=\"line c{colour}{dashed}\" points=\"{}\"/>",
            places.join(" ")
        );
    }
    svg + "</svg>"
}

fn open(unit: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
         <text class=\"unit\" x=\"{:.1}\" y=\"12\">{unit}</text>",
        LEFT - 8.0
    )
}

fn grid(svg: &mut String, y: Axis) {
    for tick in y.ticks() {
        let (at, end) = (y.at(tick), WIDTH - RIGHT);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{end}\" y2=\"{at:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            shown(tick),
        );
    }
}

/// A number with as many digits as a reader needs.
fn shown(value: f64) -> String {
    match value {
        10_000.0.. => format!("{:.1} k", value / 1000.0).replace(".0 k", " k"),
        100.0.. => format!("{value:.0}"),
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        1.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
}

/// Text without markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        let linear = Axis { low: 0.0, high: 46_000.0, is_log: false, from: 0.0, to: 1.0 };
        assert_eq!(linear.ticks(), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]);
        let log = Axis { low: 0.1, high: 3.0, is_log: true, from: 0.0, to: 1.0 };
        let ticks: Vec<String> = log.ticks().into_iter().map(shown).collect();
        assert_eq!(ticks, ["0.1", "0.2", "0.5", "1", "2"]);
    }

    #[test]
    fn a_plot_without_points_is_valid() {
        for svg in [bars(&[], "s"), percentiles(&[]), over_time(&[])] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<b>&\""), "&lt;b&gt;&amp;&quot;");
    }
}
