//! What the Go types of Kubernetes 1.35 say beyond their OpenAPI schema: which lists are maps or sets, which objects are
//! replaced as a whole, how a strategic merge patch treats a list, and what the codec does with zero values.
//!
//! Types are named without the prefix that all of one family share, as `component` in `schema` resolves them.

/// How one list (or map) differs from the default, which is an atomic list and a granular map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fact {
    /// `x-kubernetes-list-type: set`; merged as a set by a strategic merge patch as well when `patched` says so.
    Set { patched: bool },
    /// `x-kubernetes-list-type: map`; the patch merge key may be another one, and there may be none.
    Map {
        keys: &'static [&'static str],
        patch_key: Option<&'static str>,
        retain_keys: bool,
    },
    /// Atomic for server-side apply, yet merged by this key by a strategic merge patch.
    PatchOnly(&'static str),
    /// A map that is replaced as a whole.
    AtomicMap,
}

const SET: Fact = Fact::Set { patched: false };
const PATCHED_SET: Fact = Fact::Set { patched: true };

/// A list map whose first key is also the patch merge key.
const fn map(keys: &'static [&'static str]) -> Fact {
    Fact::Map {
        keys,
        patch_key: keys.first().copied(),
        retain_keys: false,
    }
}

const fn retaining(keys: &'static [&'static str]) -> Fact {
    Fact::Map {
        keys,
        patch_key: keys.first().copied(),
        retain_keys: true,
    }
}

const fn unpatched(keys: &'static [&'static str]) -> Fact {
    Fact::Map {
        keys,
        patch_key: None,
        retain_keys: false,
    }
}

const PORT_KEYS: &[&str] = &["containerPort", "protocol"];
const SPREAD_KEYS: &[&str] = &["topologyKey", "whenUnsatisfiable"];

/// Type, field, fact.
pub(super) const FIELDS: &[(&str, &str, Fact)] = &[
    ("batch.v1.JobStatus", "conditions", Fact::PatchOnly("type")),
    ("batch.v1.PodFailurePolicyOnExitCodesRequirement", "values", SET),
    ("batch.v1.UncountedTerminatedPods", "failed", SET),
    ("batch.v1.UncountedTerminatedPods", "succeeded", SET),
    ("core.v1.Container", "env", map(&["name"])),
    ("core.v1.Container", "ports", map(PORT_KEYS)),
    ("core.v1.Container", "volumeDevices", map(&["devicePath"])),
    ("core.v1.Container", "volumeMounts", map(&["mountPath"])),
    ("core.v1.ContainerRestartRuleOnExitCodes", "values", SET),
    (
        "core.v1.ContainerStatus",
        "allocatedResourcesStatus",
        map(&["name"]),
    ),
    ("core.v1.ContainerStatus", "volumeMounts", map(&["mountPath"])),
    ("core.v1.EphemeralContainer", "env", map(&["name"])),
    ("core.v1.EphemeralContainer", "ports", map(PORT_KEYS)),
    (
        "core.v1.EphemeralContainer",
        "volumeDevices",
        map(&["devicePath"]),
    ),
    ("core.v1.EphemeralContainer", "volumeMounts", map(&["mountPath"])),
    ("core.v1.NamespaceStatus", "conditions", map(&["type"])),
    ("core.v1.NodeSpec", "podCIDRs", PATCHED_SET),
    ("core.v1.NodeStatus", "addresses", map(&["type"])),
    ("core.v1.NodeStatus", "conditions", map(&["type"])),
    (
        "core.v1.PersistentVolumeClaimStatus",
        "conditions",
        map(&["type"]),
    ),
    ("core.v1.PodSpec", "containers", map(&["name"])),
    ("core.v1.PodSpec", "ephemeralContainers", map(&["name"])),
    ("core.v1.PodSpec", "hostAliases", map(&["ip"])),
    ("core.v1.PodSpec", "imagePullSecrets", map(&["name"])),
    ("core.v1.PodSpec", "initContainers", map(&["name"])),
    ("core.v1.PodSpec", "nodeSelector", Fact::AtomicMap),
    ("core.v1.PodSpec", "resourceClaims", retaining(&["name"])),
    ("core.v1.PodSpec", "schedulingGates", map(&["name"])),
    ("core.v1.PodSpec", "topologySpreadConstraints", map(SPREAD_KEYS)),
    ("core.v1.PodSpec", "volumes", retaining(&["name"])),
    ("core.v1.PodStatus", "conditions", map(&["type"])),
    ("core.v1.PodStatus", "hostIPs", Fact::PatchOnly("ip")),
    ("core.v1.PodStatus", "podIPs", map(&["ip"])),
    ("core.v1.PodStatus", "resourceClaimStatuses", retaining(&["name"])),
    ("core.v1.ResourceRequirements", "claims", unpatched(&["name"])),
    ("core.v1.ResourceStatus", "resources", unpatched(&["resourceID"])),
    ("core.v1.ServiceAccount", "secrets", map(&["name"])),
    (
        "apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        unpatched(&["type"]),
    ),
    (
        "apiextensions.v1.JSONSchemaProps",
        "x-kubernetes-validations",
        map(&["rule"]),
    ),
    ("meta.v1.ObjectMeta", "finalizers", PATCHED_SET),
    ("meta.v1.ObjectMeta", "ownerReferences", map(&["uid"])),
];

/// Types with `x-kubernetes-map-type: atomic`.
pub(super) const ATOMIC_TYPES: &[&str] = &[
    "core.v1.ConfigMapKeySelector",
    "core.v1.FileKeySelector",
    "core.v1.LocalObjectReference",
    "core.v1.NodeSelector",
    "core.v1.NodeSelectorTerm",
    "core.v1.ObjectFieldSelector",
    "core.v1.ObjectReference",
    "core.v1.ResourceFieldSelector",
    "core.v1.SecretKeySelector",
    "core.v1.TypedLocalObjectReference",
    "meta.v1.LabelSelector",
    "meta.v1.OwnerReference",
];

/// Numbers and booleans that Go holds by value and drops when they are zero. All others are pointers: a zero that was
/// written stays.
pub(super) const OMITTED_SCALARS: &[(&str, &[&str])] = &[
    ("apiextensions.v1.CustomResourceColumnDefinition", &["priority"]),
    (
        "apiextensions.v1.CustomResourceDefinitionCondition",
        &["observedGeneration"],
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionSpec",
        &["preserveUnknownFields"],
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionStatus",
        &["observedGeneration"],
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionVersion",
        &["deprecated"],
    ),
    (
        "apiextensions.v1.JSONSchemaProps",
        &[
            "exclusiveMaximum",
            "exclusiveMinimum",
            "nullable",
            "uniqueItems",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
        ],
    ),
    ("batch.v1.JobStatus", &["active", "failed", "succeeded"]),
    (
        "core.v1.AWSElasticBlockStoreVolumeSource",
        &["partition", "readOnly"],
    ),
    ("core.v1.AzureFileVolumeSource", &["readOnly"]),
    ("core.v1.CephFSVolumeSource", &["readOnly"]),
    ("core.v1.CinderVolumeSource", &["readOnly"]),
    ("core.v1.Container", &["stdin", "stdinOnce", "tty"]),
    ("core.v1.ContainerImage", &["sizeBytes"]),
    ("core.v1.ContainerPort", &["hostPort"]),
    ("core.v1.ContainerStateTerminated", &["signal"]),
    ("core.v1.EphemeralContainer", &["stdin", "stdinOnce", "tty"]),
    ("core.v1.Event", &["count"]),
    ("core.v1.EventSeries", &["count"]),
    ("core.v1.FCVolumeSource", &["readOnly"]),
    ("core.v1.FlexVolumeSource", &["readOnly"]),
    (
        "core.v1.GCEPersistentDiskVolumeSource",
        &["partition", "readOnly"],
    ),
    ("core.v1.GlusterfsVolumeSource", &["readOnly"]),
    (
        "core.v1.ISCSIVolumeSource",
        &["chapAuthDiscovery", "chapAuthSession", "readOnly"],
    ),
    ("core.v1.NFSVolumeSource", &["readOnly"]),
    ("core.v1.NodeSpec", &["unschedulable"]),
    ("core.v1.PersistentVolumeClaimVolumeSource", &["readOnly"]),
    ("core.v1.PodCondition", &["observedGeneration"]),
    ("core.v1.PodSpec", &["hostIPC", "hostNetwork", "hostPID"]),
    ("core.v1.PodStatus", &["observedGeneration"]),
    ("core.v1.PortworxVolumeSource", &["readOnly"]),
    (
        "core.v1.Probe",
        &[
            "failureThreshold",
            "initialDelaySeconds",
            "periodSeconds",
            "successThreshold",
            "timeoutSeconds",
        ],
    ),
    ("core.v1.QuobyteVolumeSource", &["readOnly"]),
    ("core.v1.RBDVolumeSource", &["readOnly"]),
    ("core.v1.ScaleIOVolumeSource", &["readOnly", "sslEnabled"]),
    ("core.v1.StorageOSVolumeSource", &["readOnly"]),
    ("core.v1.VolumeMount", &["readOnly"]),
    ("core.v1.VolumeMountStatus", &["readOnly"]),
    ("authentication.v1.TokenReviewStatus", &["authenticated"]),
    ("authorization.v1.SubjectAccessReviewStatus", &["denied"]),
    ("events.v1.Event", &["deprecatedCount"]),
    ("meta.v1.ObjectMeta", &["generation"]),
];

/// Strings that Go holds by pointer, so that an empty one stays. All other optional strings vanish when they are empty.
pub(super) const KEPT_STRINGS: &[(&str, &[&str])] = &[
    (
        "apiextensions.v1.CustomResourceDefinitionVersion",
        &["deprecationWarning"],
    ),
    (
        "apiextensions.v1.CustomResourceSubresourceScale",
        &["labelSelectorPath"],
    ),
    (
        "apiextensions.v1.JSONSchemaProps",
        &["$ref", "x-kubernetes-list-type", "x-kubernetes-map-type"],
    ),
    ("apiextensions.v1.ServiceReference", &["path"]),
    ("apiextensions.v1.ValidationRule", &["reason"]),
    ("apiextensions.v1.WebhookClientConfig", &["url"]),
    (
        "batch.v1.JobSpec",
        &["completionMode", "managedBy", "podReplacementPolicy"],
    ),
    ("batch.v1.JobStatus", &["failedIndexes"]),
    (
        "batch.v1.PodFailurePolicyOnExitCodesRequirement",
        &["containerName"],
    ),
    ("batch.v1.SuccessPolicyRule", &["succeededIndexes"]),
    (
        "coordination.v1.LeaseSpec",
        &["holderIdentity", "preferredHolder", "strategy"],
    ),
    ("core.v1.AppArmorProfile", &["localhostProfile"]),
    (
        "core.v1.AzureDiskVolumeSource",
        &["cachingMode", "fsType", "kind"],
    ),
    ("core.v1.CSIVolumeSource", &["fsType"]),
    ("core.v1.ClusterTrustBundleProjection", &["name", "signerName"]),
    ("core.v1.Container", &["restartPolicy"]),
    ("core.v1.ContainerStatus", &["stopSignal"]),
    ("core.v1.EphemeralContainer", &["restartPolicy"]),
    ("core.v1.GRPCAction", &["service"]),
    ("core.v1.HostPathVolumeSource", &["type"]),
    ("core.v1.ISCSIVolumeSource", &["initiatorName"]),
    ("core.v1.Lifecycle", &["stopSignal"]),
    (
        "core.v1.PersistentVolumeClaimSpec",
        &["storageClassName", "volumeAttributesClassName", "volumeMode"],
    ),
    (
        "core.v1.PersistentVolumeClaimStatus",
        &["currentVolumeAttributesClassName"],
    ),
    ("core.v1.PodDNSConfigOption", &["value"]),
    (
        "core.v1.PodResourceClaim",
        &["resourceClaimName", "resourceClaimTemplateName"],
    ),
    ("core.v1.PodResourceClaimStatus", &["resourceClaimName"]),
    (
        "core.v1.PodSecurityContext",
        &[
            "fsGroupChangePolicy",
            "seLinuxChangePolicy",
            "supplementalGroupsPolicy",
        ],
    ),
    (
        "core.v1.PodSpec",
        &["hostnameOverride", "preemptionPolicy", "runtimeClassName"],
    ),
    ("core.v1.SeccompProfile", &["localhostProfile"]),
    ("core.v1.SecurityContext", &["procMount"]),
    (
        "core.v1.TopologySpreadConstraint",
        &["nodeAffinityPolicy", "nodeTaintsPolicy"],
    ),
    ("core.v1.TypedLocalObjectReference", &["apiGroup"]),
    ("core.v1.TypedObjectReference", &["apiGroup", "namespace"]),
    ("core.v1.VolumeMount", &["mountPropagation", "recursiveReadOnly"]),
    ("core.v1.VolumeMountStatus", &["recursiveReadOnly"]),
    (
        "core.v1.WindowsSecurityContextOptions",
        &["gmsaCredentialSpec", "gmsaCredentialSpecName", "runAsUserName"],
    ),
];

/// What an absent struct looks like once Go has written it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blank {
    /// A struct without `omitempty` to help it: `{}`, with its own blanks filled in.
    Object,
    /// A time that was never set, or a list that was never made.
    Null,
    /// A quantity of nothing.
    ZeroQuantity,
    EmptyString,
}

/// Fields that Go holds by value and therefore always writes. Required strings, numbers and booleans are too, without
/// being listed here.
pub(super) const ALWAYS_WRITTEN: &[(&str, &str, Blank)] = &[
    ("apiextensions.v1.CustomResourceDefinition", "spec", Blank::Object),
    (
        "apiextensions.v1.CustomResourceDefinitionCondition",
        "lastTransitionTime",
        Blank::Null,
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionSpec",
        "names",
        Blank::Object,
    ),
    (
        "apiextensions.v1.CustomResourceDefinitionSpec",
        "versions",
        Blank::Null,
    ),
    ("authentication.v1.SelfSubjectReview", "status", Blank::Object),
    (
        "authentication.v1.SelfSubjectReviewStatus",
        "userInfo",
        Blank::Object,
    ),
    ("authentication.v1.TokenReview", "spec", Blank::Object),
    ("authentication.v1.TokenReview", "status", Blank::Object),
    ("authentication.v1.TokenReviewStatus", "user", Blank::Object),
    ("authorization.v1.SelfSubjectAccessReview", "spec", Blank::Object),
    (
        "authorization.v1.SelfSubjectAccessReview",
        "status",
        Blank::Object,
    ),
    ("batch.v1.Job", "spec", Blank::Object),
    ("batch.v1.Job", "status", Blank::Object),
    ("batch.v1.JobCondition", "lastProbeTime", Blank::Null),
    ("batch.v1.JobCondition", "lastTransitionTime", Blank::Null),
    ("batch.v1.JobSpec", "template", Blank::Object),
    ("coordination.v1.Lease", "spec", Blank::Object),
    ("core.v1.Container", "resources", Blank::Object),
    ("core.v1.ContainerStateRunning", "startedAt", Blank::Null),
    ("core.v1.ContainerStateTerminated", "finishedAt", Blank::Null),
    ("core.v1.ContainerStateTerminated", "startedAt", Blank::Null),
    ("core.v1.ContainerStatus", "lastState", Blank::Object),
    ("core.v1.ContainerStatus", "state", Blank::Object),
    ("core.v1.EphemeralContainer", "resources", Blank::Object),
    ("core.v1.Event", "eventTime", Blank::Null),
    ("core.v1.Event", "firstTimestamp", Blank::Null),
    ("core.v1.Event", "involvedObject", Blank::Object),
    ("core.v1.Event", "lastTimestamp", Blank::Null),
    ("core.v1.Event", "reportingComponent", Blank::EmptyString),
    ("core.v1.Event", "reportingInstance", Blank::EmptyString),
    ("core.v1.Event", "source", Blank::Object),
    ("core.v1.EventSeries", "lastObservedTime", Blank::Null),
    ("core.v1.Namespace", "spec", Blank::Object),
    ("core.v1.Namespace", "status", Blank::Object),
    ("core.v1.NamespaceCondition", "lastTransitionTime", Blank::Null),
    ("core.v1.Node", "spec", Blank::Object),
    ("core.v1.Node", "status", Blank::Object),
    ("core.v1.NodeCondition", "lastHeartbeatTime", Blank::Null),
    ("core.v1.NodeCondition", "lastTransitionTime", Blank::Null),
    ("core.v1.NodeDaemonEndpoints", "kubeletEndpoint", Blank::Object),
    ("core.v1.NodeRuntimeHandler", "name", Blank::EmptyString),
    ("core.v1.NodeStatus", "daemonEndpoints", Blank::Object),
    ("core.v1.NodeStatus", "nodeInfo", Blank::Object),
    ("core.v1.PersistentVolumeClaim", "spec", Blank::Object),
    ("core.v1.PersistentVolumeClaim", "status", Blank::Object),
    (
        "core.v1.PersistentVolumeClaimCondition",
        "lastProbeTime",
        Blank::Null,
    ),
    (
        "core.v1.PersistentVolumeClaimCondition",
        "lastTransitionTime",
        Blank::Null,
    ),
    ("core.v1.PersistentVolumeClaimSpec", "resources", Blank::Object),
    ("core.v1.PersistentVolumeClaimTemplate", "spec", Blank::Object),
    ("core.v1.Pod", "spec", Blank::Object),
    ("core.v1.Pod", "status", Blank::Object),
    ("core.v1.PodCondition", "lastProbeTime", Blank::Null),
    ("core.v1.PodCondition", "lastTransitionTime", Blank::Null),
    ("core.v1.PodSpec", "containers", Blank::Null),
    ("core.v1.PodTemplateSpec", "spec", Blank::Object),
    ("core.v1.PreferredSchedulingTerm", "preference", Blank::Object),
    ("core.v1.ResourceFieldSelector", "divisor", Blank::ZeroQuantity),
    ("core.v1.TypedLocalObjectReference", "apiGroup", Blank::Null),
    ("core.v1.TypedObjectReference", "apiGroup", Blank::Null),
    (
        "core.v1.WeightedPodAffinityTerm",
        "podAffinityTerm",
        Blank::Object,
    ),
    ("events.v1.Event", "deprecatedFirstTimestamp", Blank::Null),
    ("events.v1.Event", "deprecatedLastTimestamp", Blank::Null),
    ("events.v1.Event", "deprecatedSource", Blank::Object),
    ("events.v1.Event", "eventTime", Blank::Null),
    ("events.v1.Event", "regarding", Blank::Object),
    ("events.v1.EventSeries", "lastObservedTime", Blank::Null),
];

/// Required by the schema, yet dropped by Go when empty.
pub(super) const REQUIRED_BUT_OMITTED: &[(&str, &str)] = &[
    ("core.v1.ContainerRestartRule", "action"),
    ("core.v1.ContainerRestartRuleOnExitCodes", "operator"),
    ("core.v1.PodCertificateProjection", "keyType"),
    ("core.v1.PodCertificateProjection", "signerName"),
];
