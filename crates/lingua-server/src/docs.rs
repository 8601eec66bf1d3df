//! The description of all routes, for people: one page that needs nothing from anywhere else.
//!
//! Start at [`page`]. It is drawn from the OpenAPI document, so that it cannot say anything else.

use std::fmt::Write;

use serde_json::Value;

use crate::openapi::{self, name_of};
use crate::table::{Content, ROUTES, Route};

/// The page.
pub(crate) fn page() -> String {
    let document = openapi::document();
    let mut page = String::from(HEAD);
    for role in ["client", "node", "admin", "open"] {
        put(&mut page, format_args!("<h2>{role}</h2>"));
        for route in ROUTES.iter().filter(|route| route.role == role) {
            draw_route(&mut page, &document, route);
        }
    }
    page += "<h2>types</h2>";
    for (name, schema) in entries(&document["components"]["schemas"]) {
        put(&mut page, format_args!("<section id={name}><h3>{name}</h3>"));
        draw_schema(&mut page, schema);
        page += "</section>";
    }
    page + "</main>"
}

fn draw_route(page: &mut String, document: &Value, route: &Route) {
    let Route { method, path, summary, .. } = route;
    let operation = &document["paths"][path][method];
    put(
        page,
        format_args!(
            "<details><summary><b class={method}>{method}</b> <code>{path}</code> {summary}</summary>"
        ),
    );
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    draw_fields(
        page,
        parameters.map(|p| {
            let place = format!("{} ({})", plain(&p["name"]), plain(&p["in"]));
            (place, &p["schema"], p["required"] == true, text(&p["description"]))
        }),
    );
    let body = &operation["requestBody"]["content"];
    let answer = &operation["responses"]["200"]["content"];
    draw_content(page, document, "body", body, route.body.as_ref());
    draw_content(page, document, "answer", answer, route.answer.as_ref());
    for (speaker, messages) in entries(&operation["x-messages"]) {
        let links = messages.as_array().into_iter().flatten().map(|message| {
            let name = plain(&message["allOf"][1]["properties"]["type"]["const"]);
            format!("<code>{name}</code> {}", kind_of(&message["allOf"][0]))
        });
        let links: Vec<String> = links.collect();
        put(page, format_args!("<h4>{speaker} says</h4><p>{}</p>", links.join(" · ")));
    }
    let events = entries(&operation["x-events"]);
    let links: Vec<String> =
        events.map(|(name, data)| format!("<code>{name}</code> {}", kind_of(data))).collect();
    if !links.is_empty() {
        put(page, format_args!("<h4>events</h4><p>{}</p>", links.join(" · ")));
    }
    *page += "</details>";
}

fn draw_content(
    page: &mut String,
    document: &Value,
    title: &str,
    content: &Value,
    given: Option<&Content>,
) {
    for (kind, content) in entries(content) {
        let schema = &content["schema"];
        put(page, format_args!("<h4>{title}: {} {}</h4>", escape(kind), kind_of(schema)));
        if let Some(name) = name_of(schema) {
            draw_schema(page, &document["components"]["schemas"][name]);
        }
    }
    if let Some(Content::Json { example, .. }) = given {
        put(page, format_args!("<pre>{}</pre>", escape(example)));
    }
}

fn draw_schema(page: &mut String, schema: &Value) {
    put(page, format_args!("<p>{}</p>", text(&schema["description"])));
    if schema.get("properties").is_none() {
        put(page, format_args!("<p>{}</p>", kind_of(schema)));
        return;
    }
    let required = schema["required"].as_array();
    draw_fields(
        page,
        entries(&schema["properties"]).map(|(name, field)| {
            let must = required.is_some_and(|names| names.iter().any(|one| one == name));
            (name.clone(), field, must, text(&field["description"]))
        }),
    );
}

fn draw_fields<'a>(
    page: &mut String,
    fields: impl Iterator<Item = (String, &'a Value, bool, String)>,
) {
    let mut fields = fields.peekable();
    if fields.peek().is_none() {
        return;
    }
    *page += "<table><tr><th>name<th>type<th>required<th>what</tr>";
    for (name, schema, must, what) in fields {
        let (name, kind) = (escape(&name), kind_of(schema));
        let must = if must { "yes" } else { "" };
        put(page, format_args!("<tr><td><code>{name}</code><td>{kind}<td>{must}<td>{what}</tr>"));
    }
    *page += "</table>";
}

/// A schema in a few words.
fn kind_of(schema: &Value) -> String {
    if let Some(name) = name_of(schema) {
        return format!("<a href=#{name}>{name}</a>");
    }
    if let Some(word) = schema["const"].as_str() {
        return word.to_owned();
    }
    if let Some(any) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let kinds: Vec<String> = any.iter().map(kind_of).filter(|kind| kind != "null").collect();
        return kinds.join(" or ");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words.iter().map(plain).collect();
        return format!("one of {}", words.join(", "));
    }
    let named = match &schema["type"] {
        Value::Array(any) => any.iter().map(plain).find(|name| name != "null").unwrap_or_default(),
        one => plain(one),
    };
    let bounds = bounds_of(schema);
    match named.as_str() {
        "array" => match schema["prefixItems"].as_array() {
            Some(items) => items.iter().map(kind_of).collect::<Vec<_>>().join(" and "),
            None => format!("list of {}{bounds}", kind_of(&schema["items"])),
        },
        "object" if schema.get("additionalProperties").is_some() => {
            format!("object of {}", kind_of(&schema["additionalProperties"]))
        }
        named => format!("{named}{bounds}"),
    }
}

fn bounds_of(schema: &Value) -> String {
    let mut bounds = String::new();
    for (key, words) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("maxItems", "entries at most"),
        ("maxLength", "characters at most"),
    ] {
        // Numbers that cannot be negative need no telling.
        if let Some(bound) = schema[key].as_u64().filter(|bound| *bound > 0) {
            match words.starts_with("at ") {
                true => put(&mut bounds, format_args!(", {words} {bound}")),
                false => put(&mut bounds, format_args!(", {bound} {words}")),
            }
        }
    }
    bounds
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// A text as it is, or nothing.
fn plain(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A text with its `code` marked up.
fn text(value: &Value) -> String {
    let escaped = escape(value.as_str().unwrap_or_default());
    let mut marked = String::new();
    for (i, part) in escaped.split('`').enumerate() {
        if i > 0 {
            marked += if i % 2 == 1 { "<code>" } else { "</code>" };
        }
        marked += part;
    }
    marked
}

fn put(page: &mut String, what: std::fmt::Arguments<'_>) {
    page.write_fmt(what).expect("writing to a string cannot fail");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8>\
<meta name=viewport content='width=device-width'><title>Lingua: routes</title><style>\
body{font:16px/1.5 system-ui,sans-serif;margin:0;background:#fafafa;color:#222}\
main{max-width:60rem;margin:2rem auto;padding:0 1rem}\
details,section{background:#fff;border:1px solid #ddd;border-radius:6px;margin:.4rem 0;padding:.5rem .8rem}\
summary{cursor:pointer}b{display:inline-block;width:3.2rem;text-transform:uppercase;font-size:.8rem}\
h3,h4{margin:.4rem 0}p{margin:.3rem 0}\
table{border-collapse:collapse;width:100%;font-size:.9rem;margin:.4rem 0}\
th,td{text-align:left;vertical-align:top;padding:.2rem .6rem .2rem 0;border-bottom:1px solid #eee}\
th{font-weight:600;color:#777}td:nth-child(1){white-space:nowrap}td:nth-child(2){max-width:18rem}\
a{color:#06c}code{font-size:.9em}\
.get{color:#0a6}.post{color:#06c}pre{background:#f4f4f6;padding:.6rem;overflow:auto;border-radius:4px}\
@media(prefers-color-scheme:dark){body{background:#16181d;color:#ddd}details,section{background:#1e2127;\
border-color:#333}pre{background:#16181d}th,td{border-color:#333}a{color:#6af}}</style><main>\
<h1>Lingua</h1>\
<p>Every route, with its fields and an example. For machines: <a href=/openapi.json>openapi.json</a>.</p>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_route_and_every_field() {
        let page = page();
        for route in ROUTES {
            assert!(page.contains(route.path), "{}", route.path);
        }
        let document = openapi::document();
        for (name, schema) in entries(&document["components"]["schemas"]) {
            assert!(page.contains(&format!("<section id={name}>")), "{name}");
            for (field, _) in entries(&schema["properties"]) {
                assert!(page.contains(&format!("<td><code>{field}</code>")), "{name}.{field}");
            }
        }
        let tgt = "<code>tgt_lang</code><td>string<td>yes<td>What it shall become.";
        assert!(
            page.contains(tgt),
            "a field has its type, whether it must be there, and its meaning"
        );
    }

    #[test]
    fn the_page_asks_nobody_else() {
        let page = page();
        assert!(!page.contains("http://") && !page.contains("https://"), "it loads something");
    }
}
