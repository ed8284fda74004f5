//! Reads `spec.runtime.config`: what a run says about its Job instead of the settings.
//!
//! A value of the wrong form is refused by name: whoever wrote it would otherwise wonder why it does nothing. Keys that are
//! not listed here are passed over, because the map is shared with the other runtimes. Null and blank texts count as absent;
//! an empty list or object is a value, and clears what the settings say. What has a type of Kubernetes is passed on as it was
//! given, also with fields of a newer Kubernetes than this program knows.

use std::collections::BTreeMap;

use jangar_api::{
    agents::{agent::Agent, agent_run::AgentRun},
    reason::Reason,
    values::Int32,
};
use k8s_openapi::api::core::v1::{Affinity, PodSecurityContext, Toleration, TopologySpreadConstraint};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    as_given::{AsGiven, Unfit, topology_spread_constraint},
    decision::Rejection,
    settings::Settings,
};

/// The most retries a run may ask for. Each is a Job of its own, so a number typed by mistake would be costly.
pub const RETRIES_MAX: u32 = 100;
/// A finished Job is kept for at least this long, so that its log can be read.
const TTL_MIN_SECONDS: u32 = 30;
/// A finished Job is kept for at most a week: its pod takes up room in the cluster.
const TTL_MAX_SECONDS: u32 = 604_800;
/// How much of a wrong value a message repeats.
const QUOTE_MAX_CHARS: usize = 100;

/// What a run says about its Job; absent where it says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RuntimeConfig {
    pub(super) service_account: Option<String>,
    pub(super) node_selector: Option<BTreeMap<String, String>>,
    pub(super) tolerations: Option<Vec<AsGiven<Toleration>>>,
    pub(super) topology_spread_constraints: Option<Vec<AsGiven<TopologySpreadConstraint>>>,
    pub(super) affinity: Option<AsGiven<Affinity>>,
    pub(super) pod_security_context: Option<AsGiven<PodSecurityContext>>,
    pub(super) priority_class_name: Option<String>,
    pub(super) scheduler_name: Option<String>,
    pub(super) image_pull_secrets: Option<Vec<String>>,
    pub(super) backoff_limit: Option<u32>,
    pub(super) ttl_seconds_after_finished: Option<u32>,
    pub(super) log_retention_seconds: Option<u32>,
}

impl RuntimeConfig {
    /// What an AgentRun says.
    pub(super) fn of_run(run: &AgentRun) -> Result<Self, Rejection> {
        let config = run.spec.runtime.config.as_ref();
        Self::read(config.map(|config| &config.0))
    }

    /// Reads the map.
    pub(super) fn read(map: Option<&Map<String, Value>>) -> Result<Self, Rejection> {
        let fields = Fields { map };
        Ok(Self {
            service_account: fields.text("serviceAccount")?,
            node_selector: fields.strings("nodeSelector")?,
            tolerations: fields.list("tolerations", AsGiven::read)?,
            topology_spread_constraints: fields
                .list("topologySpreadConstraints", topology_spread_constraint)?,
            affinity: fields.object("affinity")?,
            pod_security_context: fields.object("podSecurityContext")?,
            priority_class_name: fields.text("priorityClassName")?,
            scheduler_name: fields.text("schedulerName")?,
            image_pull_secrets: fields.secret_names("imagePullSecrets")?,
            backoff_limit: fields.count("backoffLimit")?,
            ttl_seconds_after_finished: fields.count("ttlSecondsAfterFinished")?,
            log_retention_seconds: fields.count("logRetentionSeconds")?,
        })
    }
}

/// How many attempts a run has: one, and as many more as the run, else its Agent, else the settings allow.
pub fn attempts_allowed(
    run: &AgentRun,
    agent: Option<&Agent>,
    settings: &Settings,
) -> Result<u32, Rejection> {
    let config = RuntimeConfig::of_run(run)?;
    let defaults = agent.and_then(|agent| agent.spec.defaults.as_ref());
    let of_agent = defaults
        .and_then(|defaults| defaults.retry_limit)
        .map(not_negative);
    let (retries, place) = match (config.backoff_limit, of_agent) {
        (Some(retries), _) => (retries, "spec.runtime.config.backoffLimit".to_owned()),
        (None, Some(retries)) => (
            retries,
            format!("spec.defaults.retryLimit of Agent {:?}", run.spec.agent_ref.name),
        ),
        (None, None) => (
            settings.runner.backoff_limit,
            "JANGAR_AGENT_RUNNER_BACKOFF_LIMIT".to_owned(),
        ),
    };
    attempts(retries, &place)
}

/// How many attempts so many retries make; `place` is what says so.
pub(super) fn attempts(retries: u32, place: &str) -> Result<u32, Rejection> {
    if retries > RETRIES_MAX {
        return Err(Rejection::new(
            Reason::InvalidRuntimeConfig,
            format!(
                "{place} is {retries}, and a run has at most {RETRIES_MAX} retries: choose a smaller number"
            ),
        ));
    }
    Ok(1 + retries)
}

/// How long the finished Job of a run is kept, within sensible bounds; `None` until the run is deleted.
pub fn ttl_seconds(run: &AgentRun, settings: &Settings) -> Result<Option<u32>, Rejection> {
    let asked = RuntimeConfig::of_run(run)?
        .ttl_seconds_after_finished
        .or(settings.runner.job_ttl_seconds);
    Ok(bounded_ttl(asked))
}

/// How long a finished Job is kept for which so many seconds are asked; 0 is for as long as its run.
pub(super) fn bounded_ttl(asked: Option<u32>) -> Option<u32> {
    asked
        .filter(|seconds| *seconds > 0)
        .map(|seconds| seconds.clamp(TTL_MIN_SECONDS, TTL_MAX_SECONDS))
}

/// How long the archived logs of a run are kept. It has nothing to do with how long its Job is.
pub fn log_retention_seconds(run: &AgentRun, settings: &Settings) -> Result<u32, Rejection> {
    let asked = RuntimeConfig::of_run(run)?.log_retention_seconds;
    Ok(asked.unwrap_or(settings.runner.log_retention_seconds))
}

pub(super) fn not_negative(number: Int32) -> u32 {
    u32::try_from(number.get()).unwrap_or(0)
}

/// The fields of the map, each read as what it must be.
struct Fields<'a> {
    map: Option<&'a Map<String, Value>>,
}

impl<'a> Fields<'a> {
    /// Where a field stands and what it says, if it says anything.
    fn get(&self, name: &str) -> Option<(String, &'a Value)> {
        let value = self.map?.get(name)?;
        (!value.is_null()).then(|| (format!("spec.runtime.config.{name}"), value))
    }

    fn text(&self, name: &str) -> Result<Option<String>, Rejection> {
        let Some((place, value)) = self.get(name) else {
            return Ok(None);
        };
        let text = value
            .as_str()
            .ok_or_else(|| wrong(&place, value, "it must be a text"))?
            .trim();
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// A number of something: a fraction is dropped, and what is negative counts as none.
    fn count(&self, name: &str) -> Result<Option<u32>, Rejection> {
        let Some((place, value)) = self.get(name) else {
            return Ok(None);
        };
        if !value.is_number() {
            return Err(wrong(&place, value, "it must be a number, without quotes"));
        }
        read_as::<Int32>(&place, value).map(|number| Some(not_negative(number)))
    }

    fn strings(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, Rejection> {
        let Some((place, value)) = self.get(name) else {
            return Ok(None);
        };
        let entries = value.as_object().ok_or_else(|| {
            wrong(
                &place,
                value,
                "it must be an object of texts; {} clears the default",
            )
        })?;
        entries
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(text) => Ok((key.clone(), text.to_owned())),
                None => Err(wrong(
                    &format!("{place}.{key}"),
                    value,
                    "it must be a text: put it in quotes",
                )),
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn items(&self, name: &str) -> Result<Option<(String, &'a Vec<Value>)>, Rejection> {
        let Some((place, value)) = self.get(name) else {
            return Ok(None);
        };
        let items = value
            .as_array()
            .ok_or_else(|| wrong(&place, value, "it must be a list; [] clears the default"))?;
        Ok(Some((place, items)))
    }

    fn list<T>(
        &self,
        name: &str,
        read: impl Fn(&Value) -> Result<AsGiven<T>, Unfit>,
    ) -> Result<Option<Vec<AsGiven<T>>>, Rejection> {
        let Some((place, items)) = self.items(name)? else {
            return Ok(None);
        };
        let item = |(index, item)| kubernetes_object(&format!("{place}[{index}]"), item, &read);
        items
            .iter()
            .enumerate()
            .map(item)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    fn object<T: DeserializeOwned + Serialize>(&self, name: &str) -> Result<Option<AsGiven<T>>, Rejection> {
        self.get(name)
            .map(|(place, value)| kubernetes_object(&place, value, AsGiven::read))
            .transpose()
    }

    /// Names of Secrets, each as a text or as an object with a `name`, which is how Kubernetes writes them.
    fn secret_names(&self, name: &str) -> Result<Option<Vec<String>>, Rejection> {
        let Some((place, items)) = self.items(name)? else {
            return Ok(None);
        };
        let mut names = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let text = item.as_str().or_else(|| item.get("name")?.as_str());
            let Some(text) = text else {
                let place = format!("{place}[{index}]");
                return Err(wrong(
                    &place,
                    item,
                    "it must be the name of a Secret, or an object with a name",
                ));
            };
            if !text.trim().is_empty() {
                names.push(text.trim().to_owned());
            }
        }
        Ok(Some(names))
    }
}

/// Reads an object of a Kubernetes type. `place` names it in messages.
fn kubernetes_object<T>(
    place: &str,
    value: &Value,
    read: impl Fn(&Value) -> Result<AsGiven<T>, Unfit>,
) -> Result<AsGiven<T>, Rejection> {
    if !value.is_object() {
        return Err(wrong(place, value, "it must be an object; {} clears the default"));
    }
    read(value).map_err(|unfit| wrong(place, value, &format!("it cannot be read: {unfit}")))
}

fn read_as<T: DeserializeOwned>(place: &str, value: &Value) -> Result<T, Rejection> {
    T::deserialize(value).map_err(|error| wrong(place, value, &format!("it cannot be read: {error}")))
}

fn wrong(place: &str, value: &Value, remedy: &str) -> Rejection {
    let text = value.to_string();
    let quoted: String = if text.chars().count() > QUOTE_MAX_CHARS {
        text.chars().take(QUOTE_MAX_CHARS).chain(['…']).collect()
    } else {
        text
    };
    Rejection::new(
        Reason::InvalidRuntimeConfig,
        format!("{place} is {quoted}: {remedy}"),
    )
}
