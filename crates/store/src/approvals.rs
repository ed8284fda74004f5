//! Decisions of people about gates, across runs.

use serde::Serialize;

use crate::{
    Approval, Error, Namespaces, Page, PageRequest, Store,
    conditions::Conditions,
    cursor::{Key, List, Paging},
    database::{Row, assembled},
    parts::approval,
};

/// A decision, with the run it was about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenApproval {
    pub run_uid: String,
    pub namespace: String,
    pub run: String,
    pub approval: Approval,
}

impl Store {
    /// A page of the decisions about gates, those of the latest runs first.
    pub async fn approvals(
        &self,
        namespaces: &Namespaces,
        page: &PageRequest,
    ) -> Result<Page<GivenApproval>, Error> {
        let paging = Paging::new(List::Approvals, &format!("{namespaces:?}"), page)?;
        let mut conditions = Conditions::new();
        conditions.add_namespaces("runs.namespace", namespaces)?;
        if let Some(Key(place, position)) = paging.after {
            // Within a run the second number counts upwards.
            let rest = "(given.place < ?1 OR (given.place = ?1 AND given.position > ?2))";
            conditions.add_both(rest, place, position);
        }
        let clause = conditions.clause();
        let (last, args) = conditions.finish(paging.rows());
        let sql = format!(
            "SELECT given.*, runs.namespace AS namespace, runs.name AS run \
             FROM jangar_approvals AS given JOIN jangar_runs AS runs ON runs.uid = given.run_uid{clause} \
             ORDER BY given.place DESC, given.position LIMIT {last}"
        );
        let database = self.prepared().await?;
        let rows = database
            .rows("listing approvals", "jangar_approvals", assembled(sql), args)
            .await?;
        let line = |row: &Row| {
            let key = Key(row.int("place")?, row.int("position")?);
            let given = GivenApproval {
                run_uid: row.text("run_uid")?,
                namespace: row.text("namespace")?,
                run: row.text("run")?,
                approval: approval(row)?,
            };
            Ok((key, given))
        };
        Ok(paging.page(rows.iter().map(line).collect::<Result<_, Error>>()?))
    }
}
