//! Ways through a parsed expression.

use kube::core::cel::cel::common::ast::{EntryExpr, Expr, IdedExpr};

/// The parts of an expression.
pub(super) fn children(expr: &Expr) -> Vec<&IdedExpr> {
    match expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(loop_) => {
            vec![
                &loop_.iter_range,
                &loop_.accu_init,
                &loop_.loop_cond,
                &loop_.loop_step,
                &loop_.result,
            ]
        }
        Expr::Select(select) => vec![&select.operand],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map
            .entries
            .iter()
            .flat_map(|entry| entry_children(&entry.expr))
            .collect(),
        Expr::Struct(object) => object
            .entries
            .iter()
            .flat_map(|entry| entry_children(&entry.expr))
            .collect(),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry_children(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// How deep an expression nests, counted no further than one beyond `most`. Breadth first, because depth is what the
/// count must survive.
pub(super) fn nesting(expr: &IdedExpr, most: usize) -> usize {
    let mut level = vec![expr];
    for depth in 1..=most {
        level = level.into_iter().flat_map(|expr| children(&expr.expr)).collect();
        if level.is_empty() {
            return depth;
        }
    }
    most + 1
}

/// How many parts an expression has in all.
pub(super) fn count(expr: &IdedExpr) -> u64 {
    let mut seen = 0;
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        seen += 1;
        open.extend(children(&expr.expr));
    }
    seen
}
