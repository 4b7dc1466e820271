//! A drawing of nodes: a row per tier, a box per node, a line from CPU-less memory to its nearest CPUs.

use std::fmt::Write;

use memtide_linux::topology::{Node, System};

use super::cpus;

const BOX: (usize, usize) = (230, 120);
const GAP: usize = 50;
const STYLE: &str = "text{font:13px sans-serif;fill:#222}.b{font-weight:bold}rect{fill:#f4f6f8;stroke:#667}\
    .used{fill:#5b8db8;stroke:none}.free{fill:#d5e3ee;stroke:none}\
    path{stroke:#667;fill:none;stroke-dasharray:4 3}";

/// A node and the corner of its box.
struct Placed<'a> {
    node: &'a Node,
    x: usize,
    y: usize,
}

/// The drawing as SVG.
pub fn svg(host: &System) -> String {
    let placed = place(host);
    let (width, height) =
        placed.iter().fold((0, 0), |(width, height), at| (width.max(at.x), height.max(at.y)));
    let (width, height) = (width + BOX.0 + GAP, height + BOX.1 + GAP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 \
         {width} {height}\"><style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" style=\"fill:#fff;stroke:none\"/>\n"
    );
    for at in placed.iter().filter(|at| at.node.cpus.is_empty()) {
        let beside = host.nearest_cpus(at.node).and_then(|id| placed.iter().find(|at| at.node.id == id));
        text.extend(beside.map(|beside| line(beside, at)));
    }
    text.extend(placed.iter().map(node));
    text.push_str("</svg>\n");
    text
}

/// In a row, nodes with CPUs come first. Nodes without memory are in the first row.
fn place(host: &System) -> Vec<Placed<'_>> {
    let mut placed: Vec<Placed> = Vec::new();
    let rank = |node: &Node| node.tier.unwrap_or(u8::from(node.cpus.is_empty()));
    let mut ranks: Vec<u8> = host.nodes.iter().map(rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for (row, &tier) in ranks.iter().enumerate() {
        let mut nodes: Vec<&Node> = host.nodes.iter().filter(|node| rank(node) == tier).collect();
        nodes.sort_by_key(|node| (node.cpus.is_empty(), node.id));
        placed.extend(nodes.into_iter().enumerate().map(|(column, node)| Placed {
            node,
            x: GAP + column * (BOX.0 + GAP),
            y: GAP + row * (BOX.1 + GAP),
        }));
    }
    placed
}

fn line(from: &Placed, to: &Placed) -> String {
    let ((from_x, from_y), (to_x, to_y)) = ((from.x, from.y + BOX.1), (to.x, to.y));
    let middle = BOX.0 / 2;
    if from.y == to.y {
        return format!("<path d=\"M{} {} H{to_x}\"/>\n", from_x + BOX.0, from.y + BOX.1 / 2);
    }
    format!("<path d=\"M{} {from_y} L{} {to_y}\"/>\n", from_x + middle, to_x + middle)
}

fn node(at: &Placed) -> String {
    let Placed { node, x, y } = at;
    let mut text = format!("<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n", BOX.0, BOX.1);
    let mut lines = vec![("b", format!("node {}", node.id.0))];
    lines.push((
        "",
        match &node.cpus[..] {
            [] => "no CPUs".to_owned(),
            some => format!("CPUs {}", cpus(some)),
        },
    ));
    lines.push((
        "",
        node.memory.map_or("no memory".to_owned(), |memory| {
            format!("{} MiB, {} MiB free", memory.total_kib >> 10, memory.free_kib >> 10)
        }),
    ));
    if let Some(firmware) = &node.firmware {
        let figure = |figure: Option<f64>, unit| figure.map(|figure| format!("{figure:.0} {unit}"));
        let words = [figure(firmware.read_latency_ns, "ns"), figure(firmware.read_bandwidth_mbps, "MB/s")];
        lines.push(("", words.into_iter().flatten().collect::<Vec<_>>().join(", ")));
    }
    for (number, (class, words)) in lines.iter().enumerate() {
        let _ = writeln!(
            text,
            "<text class=\"{class}\" x=\"{}\" y=\"{}\">{words}</text>",
            x + 12,
            y + 24 + 20 * number
        );
    }
    text.extend(node.memory.map(|memory| {
        let whole = BOX.0 - 24;
        let used = memory.total_kib.saturating_sub(memory.free_kib) as f64 / memory.total_kib.max(1) as f64;
        let used = (used * whole as f64) as usize;
        let bar = |class, x, width| {
            format!(
                "<rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"12\"/>\n",
                y + BOX.1 - 24
            )
        };
        bar("free", x + 12, whole) + &bar("used", x + 12, used)
    }));
    text
}
