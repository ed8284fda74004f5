//! Lists as the API server prints them for kubectl.

use anyhow::Result;
use jangar_api::Kind;
use kube::Client;
use serde_json::Value;

/// What `kubectl get` would show of a kind.
pub(super) async fn table(client: &Client, namespace: &str, kind: Kind) -> Result<String> {
    let info = kind.info();
    let path = format!(
        "/apis/{}/{}/namespaces/{namespace}/{}",
        info.group, info.version, info.plural
    );
    let request = http::Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    Ok(layout(&client.request(request).await?))
}

fn layout(table: &Value) -> String {
    let columns = list(&table["columnDefinitions"]);
    let shown: Vec<usize> = (0..columns.len())
        .filter(|at| columns[*at]["priority"] == 0)
        .collect();
    let heads = shown
        .iter()
        .map(|at| text(&columns[*at]["name"]).to_uppercase())
        .collect();
    let rows = list(&table["rows"])
        .iter()
        .map(|row| shown.iter().map(|at| text(&row["cells"][*at])).collect());
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let widths: Vec<usize> = (0..shown.len())
        .map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or(0))
        .collect();
    let padded: Vec<String> = lines
        .iter()
        .map(|line| {
            let cells: Vec<String> = line
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            cells.join("   ").trim_end().to_owned()
        })
        .collect();
    padded.join("\n")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
