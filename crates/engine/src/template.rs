//! Replaces `{{ path.to.value }}` in the texts of an AgentProvider, and in the parameters of a workflow's steps.
//!
//! A path leads through objects by key and through lists by position. A value that is missing or null becomes nothing, one
//! that is not a string becomes JSON. What a step of a workflow was to report and did not is an error: the next step would
//! otherwise go on with nothing. What a value brings in is not looked at again, so a parameter that contains braces
//! cannot pull in another value. A template that cannot be meant as it is written is an error here, where its author can
//! be told, and not a surprise in the pod.

use serde_json::Value;

/// The most bytes that one template may grow to: Linux passes no longer argument or variable to a program.
pub const OUTPUT_MAX_BYTES: usize = 128 * 1024;

/// Where the steps of a workflow stand in a context.
pub const STEPS: &str = "steps";

/// How much of a template a message repeats.
const QUOTE_MAX_CHARS: usize = 80;

/// Why a template cannot be rendered. Positions count characters from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("{template:?} opens {{{{ at character {position} and never closes it: add }}}}")]
    Unterminated { position: usize, template: String },
    #[error(
        "{template:?} has {{{{{path}}}}} at character {position}, which is no path: write names of letters, digits, _ and -, \
         with dots between them, for example {{{{ parameters.repository }}}}"
    )]
    IllegalPath {
        position: usize,
        path: String,
        template: String,
    },
    #[error(
        "{template:?} refers to {path}, and no earlier step of the run has reported that: give it to the step in \
         spec.workflow.steps[].parameters, let the earlier step report it in its outputs, or take the reference out"
    )]
    NotReported { path: String, template: String },
    #[error(
        "{template:?} refers to {path}, which has no value: give it in spec.parameters of the run, let the step that is named \
         report it in its outputs, or take the reference out"
    )]
    Missing { path: String, template: String },
    #[error(
        "{template:?} grows to more than {OUTPUT_MAX_BYTES} bytes: let the agent read large values from /workspace/run.json"
    )]
    TooLarge { template: String },
}

/// A part of a rendered template, by where it comes from: what the author wrote, or what was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    Text(&'t str),
    Value(String),
}

impl Piece<'_> {
    fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Value(value) => value,
        }
    }
}

/// Renders a template to text.
pub fn render(template: &str, context: &Value) -> Result<String, TemplateError> {
    Ok(pieces(template, context)?.iter().map(Piece::as_str).collect())
}

/// Renders a template to text, where every value has to be there.
pub fn render_strict(template: &str, context: &Value) -> Result<String, TemplateError> {
    let pieces = expand(template, context, Missing::IsWrong)?;
    Ok(pieces.iter().map(Piece::as_str).collect())
}

/// Renders a text for people and agents, in which braces may mean something else: only what begins with one of the roots is a
/// placeholder, and has to have a value. Everything else stays as it is.
pub fn render_text(text: &str, context: &Value, roots: &[&str]) -> Result<String, TemplateError> {
    let mut rendered = String::with_capacity(text.len());
    for part in parts(text, roots) {
        match part {
            Part::Text(text) => rendered.push_str(text),
            Part::Path(path) => match lookup(context, path) {
                Some(value) if !value.is_null() => rendered.push_str(&text_of(value)),
                _ => {
                    return Err(TemplateError::Missing {
                        path: path.to_owned(),
                        template: quoted(text),
                    });
                }
            },
        }
        if rendered.len() > OUTPUT_MAX_BYTES {
            return Err(TemplateError::TooLarge {
                template: quoted(text),
            });
        }
    }
    Ok(rendered)
}

/// The paths that [`render_text`] looks up, in their order.
pub fn paths_in_text<'t>(text: &'t str, roots: &[&str]) -> Vec<&'t str> {
    let paths = parts(text, roots).into_iter().filter_map(|part| match part {
        Part::Path(path) => Some(path),
        Part::Text(_) => None,
    });
    paths.collect()
}

/// A part of a text: words, or a placeholder.
enum Part<'t> {
    Text(&'t str),
    Path(&'t str),
}

fn parts<'t>(text: &'t str, roots: &[&str]) -> Vec<Part<'t>> {
    let mut parts = Vec::new();
    let mut rest = text;
    // Where to look for the next placeholder: behind those that are none.
    let mut from = 0;
    while let Some(open) = rest.get(from..).and_then(|rest| rest.find("{{")) {
        let open = from + open;
        let (Some(before), Some(inside)) = (rest.get(..open), rest.get(open + 2..)) else {
            break;
        };
        let closed = inside.split_once("}}");
        let known = closed.filter(|(path, _)| {
            let path = path.trim();
            is_path(path)
                && path
                    .split_once('.')
                    .is_some_and(|(root, _)| roots.contains(&root))
        });
        let Some((path, behind)) = known else {
            from = open + 2;
            continue;
        };
        parts.extend([Part::Text(before), Part::Path(path.trim())]);
        rest = behind;
        from = 0;
    }
    parts.push(Part::Text(rest));
    parts
}

/// Renders a template, and keeps apart what its author wrote and what was looked up.
pub fn pieces<'t>(template: &'t str, context: &Value) -> Result<Vec<Piece<'t>>, TemplateError> {
    expand(template, context, Missing::IsNothing)
}

/// What a value is taken for that is not there.
#[derive(Clone, Copy)]
enum Missing {
    /// Nothing, unless a step was to report it.
    IsNothing,
    IsWrong,
}

fn expand<'t>(template: &'t str, context: &Value, missing: Missing) -> Result<Vec<Piece<'t>>, TemplateError> {
    let mut pieces = Vec::new();
    let mut bytes = 0;
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let position = 1 + characters_before(template, rest) + before.chars().count();
        let (path, behind) = path_in(template, after, position)?;
        let value = match lookup(context, path) {
            Some(value) if !value.is_null() => text_of(value),
            _ if matches!(missing, Missing::IsWrong) => {
                return Err(TemplateError::Missing {
                    path: path.to_owned(),
                    template: quoted(template),
                });
            }
            _ if is_of_step(path) => {
                return Err(TemplateError::NotReported {
                    path: path.to_owned(),
                    template: quoted(template),
                });
            }
            _ => String::new(),
        };
        bytes += before.len() + value.len();
        if bytes > OUTPUT_MAX_BYTES {
            break;
        }
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Value(value));
        rest = behind;
    }
    if bytes + rest.len() > OUTPUT_MAX_BYTES {
        return Err(TemplateError::TooLarge {
            template: quoted(template),
        });
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

/// The paths that a template looks up, in its order.
pub fn paths(template: &str) -> Result<Vec<&str>, TemplateError> {
    let mut paths = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let position = 1 + characters_before(template, rest) + before.chars().count();
        let (path, behind) = path_in(template, after, position)?;
        paths.push(path);
        rest = behind;
    }
    Ok(paths)
}

/// The path of a placeholder that has been opened, and what follows the placeholder.
fn path_in<'t>(template: &str, after: &'t str, position: usize) -> Result<(&'t str, &'t str), TemplateError> {
    let Some((path, behind)) = after.split_once("}}") else {
        return Err(TemplateError::Unterminated {
            position,
            template: quoted(template),
        });
    };
    if !is_path(path.trim()) {
        return Err(TemplateError::IllegalPath {
            position,
            path: quoted(path),
            template: quoted(template),
        });
    }
    Ok((path.trim(), behind))
}

/// Whether a path leads to what another step of the workflow reported.
fn is_of_step(path: &str) -> bool {
    path.split('.').next() == Some(STEPS)
}

/// How many characters of the whole come before its end `rest`.
fn characters_before(whole: &str, rest: &str) -> usize {
    whole.chars().count() - rest.chars().count()
}

fn is_path(path: &str) -> bool {
    path.split('.').all(|name| {
        !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
    })
}

pub(crate) fn lookup<'a>(context: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(context, |value, name| match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// As much of a text as a message should repeat.
fn quoted(text: &str) -> String {
    if text.chars().count() <= QUOTE_MAX_CHARS {
        return text.to_owned();
    }
    text.chars().take(QUOTE_MAX_CHARS).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_replaced() {
        let context = json!({
            "agentRun": {"name": "fix-1"},
            "parameters": {"stage": "build", "über": "ü"},
            "n": 3, "yes": true, "none": null, "tags": ["a", {"b": 1}],
        });
        for (template, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("{{parameters.stage}}-{{ agentRun.name }}", "build-fix-1"),
            ("{{ n }} {{ yes }} {{ tags }}", r#"3 true ["a",{"b":1}]"#),
            ("{{ tags.0 }} {{ tags.1.b }} {{ tags.7 }} {{ tags.b }}", "a 1  "),
            ("[{{ parameters.absent }}][{{ none }}][{{ n.m }}]", "[][][]"),
            ("{{ parameters.über }} ✓", "ü ✓"),
            ("} }} {", "} }} {"),
        ] {
            assert_eq!(render(template, &context).as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn what_a_step_did_not_report_is_an_error_that_names_the_path() {
        let context = json!({"steps": {"plan": {"outputs": {"branch": "fix", "none": null, "empty": ""}}}});

        assert_eq!(
            render(
                "[{{ steps.plan.outputs.branch }}{{ steps.plan.outputs.empty }}]",
                &context
            )
            .as_deref(),
            Ok("[fix]")
        );
        for path in [
            "steps.plan.outputs.commit",
            "steps.plan.outputs.none",
            "steps.build.outputs.a",
            "steps",
        ] {
            let context = if path == "steps" {
                json!({})
            } else {
                context.clone()
            };
            let error = render(&format!("{{{{ {path} }}}}"), &context).unwrap_err();
            assert!(
                matches!(&error, TemplateError::NotReported { path: named, .. } if named == path),
                "{error}"
            );
        }
    }

    #[test]
    fn a_strict_template_wants_every_value() {
        let context = json!({"parameters": {"a": "x", "none": null}, "run": {"name": "r"}});

        let rendered = render_strict("{{ parameters.a }}-{{ run.name }}", &context);
        assert_eq!(rendered.as_deref(), Ok("x-r"));
        for path in ["parameters.b", "parameters.none", "steps.build.outputs.image"] {
            let error = render_strict(&format!("{{{{ {path} }}}}"), &context).unwrap_err();
            assert!(
                matches!(&error, TemplateError::Missing { path: named, .. } if named == path),
                "{error}"
            );
        }
    }

    #[test]
    fn the_paths_of_a_template_are_known_before_it_is_rendered() {
        assert_eq!(paths("a {{ b.c }} d {{e}}").as_deref(), Ok(&["b.c", "e"][..]));
        assert!(paths("{{ a").is_err() && paths("{{ a b }}").is_err());
    }

    #[test]
    fn a_value_is_not_rendered_again() {
        let context = json!({"a": "{{ b }}", "b": "secret"});

        assert_eq!(render("{{ a }}", &context).as_deref(), Ok("{{ b }}"));
    }

    #[test]
    fn a_mistake_is_named_with_its_place_and_its_remedy() {
        let no_path = "which is no path: write names of letters, digits, _ and -, with dots between them, for example \
                       {{ parameters.repository }}";
        for (template, expected) in [
            (
                "über {{ a",
                r#""über {{ a" opens {{ at character 6 and never closes it: add }}"#.to_owned(),
            ),
            (
                "{{ a }} {{}}",
                format!(r#""{{{{ a }}}} {{{{}}}}" has {{{{}}}} at character 9, {no_path}"#),
            ),
            (
                "{{ a b }}",
                format!(r#""{{{{ a b }}}}" has {{{{ a b }}}} at character 1, {no_path}"#),
            ),
            (
                "{{ .Name }}",
                format!(r#""{{{{ .Name }}}}" has {{{{ .Name }}}} at character 1, {no_path}"#),
            ),
            (
                "{{ {{ a }}",
                format!(r#""{{{{ {{{{ a }}}}" has {{{{ {{{{ a }}}} at character 1, {no_path}"#),
            ),
        ] {
            let message = render(template, &json!({})).unwrap_err().to_string();
            assert_eq!(message, expected, "{template}");
        }
    }

    #[test]
    fn what_a_template_grows_to_is_bounded() {
        let fits = "x".repeat(OUTPUT_MAX_BYTES);
        let context = json!({"fits": fits});

        assert_eq!(
            render("{{ fits }}", &context).map(|text| text.len()),
            Ok(OUTPUT_MAX_BYTES)
        );
        assert_eq!(
            render(&fits, &context).map(|text| text.len()),
            Ok(OUTPUT_MAX_BYTES)
        );
        for template in ["{{ fits }}!", "!{{ fits }}", "{{ fits }}{{ fits }}{{ fits }}"] {
            assert_eq!(
                render(template, &context),
                Err(TemplateError::TooLarge {
                    template: template.to_owned()
                }),
            );
        }
    }

    #[test]
    fn a_message_repeats_only_the_beginning_of_a_long_template() {
        let message = render(&format!("{}{{{{", "x".repeat(1000)), &json!({}))
            .unwrap_err()
            .to_string();

        assert!(message.contains("x…\" opens {{ at character 1001 "), "{message}");
        assert!(message.len() < 200, "{message}");
    }

    #[test]
    fn a_text_keeps_braces_that_are_not_about_the_run() {
        let context = json!({"steps": {"a": {"outputs": {"image": "i:1"}}}, "run": {"name": "r"}});
        let roots = ["steps", "run"];
        for (text, expected) in [
            (
                "deploy {{ steps.a.outputs.image }} of {{run.name}}",
                "deploy i:1 of r",
            ),
            (
                "{{ .Values.x }} and {{ values.x }} stay",
                "{{ .Values.x }} and {{ values.x }} stay",
            ),
            ("open {{ and {{ run.name }}", "open {{ and r"),
            ("{{{ run.name }}}", "{{{ run.name }}}"),
            ("{{ run }}", "{{ run }}"),
            ("", ""),
        ] {
            assert_eq!(
                render_text(text, &context, &roots).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
        let missing = render_text("{{ steps.b.outputs.image }}", &context, &roots);
        assert!(
            matches!(missing, Err(TemplateError::Missing { path, .. }) if path == "steps.b.outputs.image")
        );
        assert_eq!(
            paths_in_text("{{ run.name }} {{ x.y }} {{ steps.a.phase }}", &roots),
            ["run.name", "steps.a.phase"]
        );
    }
}
