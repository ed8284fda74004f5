//! `watch`: objects, and every change of them.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use jangar_api::Kind;

use crate::{
    cli::GetArgs,
    error::Error,
    list,
    object::Object,
    output::{self, Format, columns},
    resource,
    session::Session,
    transport::Change,
};

pub async fn watch(session: &mut Session, arguments: &GetArgs) -> Result<(), Error> {
    let (kind, name) = resource::kind_and_name(&arguments.what)?;
    let transport = session.connect().await?;
    let namespace = session.namespace();
    let selection = &arguments.selection;
    if let Some(name) = &name {
        // Somebody who mistyped the name would wait for ever.
        transport.get(kind, &namespace, name).await?;
    }
    let place = (!selection.all_namespaces).then_some(namespace.as_str());
    let mut changes = transport.watch(kind, place, name.as_deref(), selection.selector.as_deref());
    let mut shown = Shown::new(kind);
    loop {
        let change = tokio::select! {
            change = changes.next() => change,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        match change {
            Some(Change::Seen(object)) if list::matches(&object, selection) => {
                shown.seen(session, &object)?;
            }
            Some(Change::Gone(object)) => shown.gone(session, &object)?,
            Some(Change::Trouble { words, hopeless }) => {
                if hopeless {
                    return Err(
                        transport.trouble(format!("{} cannot be watched: {words}", kind.info().plural))
                    );
                }
                session
                    .console
                    .note(&format!("the line is disturbed, trying again: {words}"))?;
            }
            Some(Change::Seen(_) | Change::Relisting | Change::Listed) => {}
            None => return Ok(()),
        }
    }
}

/// What has been shown so far.
struct Shown {
    kind: Kind,
    /// The version that was shown last, by namespace and name: a list that is read anew repeats what is known.
    versions: BTreeMap<(String, String), String>,
    /// The columns of a table keep the width that they had at first, unless something needs more.
    widths: Option<Vec<usize>>,
}

impl Shown {
    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            versions: BTreeMap::new(),
            widths: None,
        }
    }

    fn seen(&mut self, session: &mut Session, object: &Object) -> Result<(), Error> {
        let key = (object.namespace().to_owned(), object.name().to_owned());
        let version = object
            .text("/metadata/resourceVersion")
            .unwrap_or_default()
            .to_owned();
        if self.versions.insert(key, version.clone()).as_ref() == Some(&version) {
            return Ok(());
        }
        self.print(session, object)
    }

    fn gone(&mut self, session: &mut Session, object: &Object) -> Result<(), Error> {
        self.versions
            .remove(&(object.namespace().to_owned(), object.name().to_owned()));
        session
            .console
            .note(&format!("{} {} was deleted", object.kind(), object.name()))
    }

    fn print(&mut self, session: &mut Session, object: &Object) -> Result<(), Error> {
        match session.format() {
            Format::Table | Format::Wide => {
                let wide = session.format() == Format::Wide;
                let table = columns::table(self.kind, std::slice::from_ref(object), wide, session.clock);
                let mut widths = table.widths();
                let mut text = String::new();
                match &self.widths {
                    None => text.push_str(&table.render_header(&widths)),
                    Some(before) => {
                        for (width, before) in widths.iter_mut().zip(before) {
                            *width = (*width).max(*before);
                        }
                    }
                }
                text.push_str(&table.render_rows(&widths, session.console.colour));
                self.widths = Some(widths);
                session.console.data(&text)
            }
            Format::Json => {
                // One document in a line, so that a program can read them as they come.
                let text = serde_json::to_string(&output::sorted(&object.shown()))?;
                session.console.line(&text)
            }
            Format::Yaml | Format::YamlStream => {
                let text = output::yaml(&object.shown())?;
                session.console.data(&format!("---\n{text}"))
            }
            Format::Name | Format::JsonPath(_) => output::object(session, self.kind, object),
        }
    }
}
