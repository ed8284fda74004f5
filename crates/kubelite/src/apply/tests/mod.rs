//! Tests of apply and update tracking as a whole.

mod behaviour;
mod harness;
mod random;
mod table;

#[test]
fn differential() {
    use serde_json::{Value, json};
    use std::fmt::Write as _;
    let Ok(dir) = std::env::var("APPLY_ORACLE") else {
        return;
    };
    let cases = std::fs::read_to_string(format!("{dir}/cases.jsonl")).unwrap();
    let answers = std::fs::read_to_string(format!("{dir}/answers.jsonl")).unwrap();
    let (mut bad, mut steps, mut report) = (0, 0, String::new());
    for (case, answer) in cases.lines().zip(answers.lines()) {
        let (case, answer): (Value, Value) = (
            serde_json::from_str(case).unwrap(),
            serde_json::from_str(answer).unwrap(),
        );
        let mut server =
            harness::Server::new(harness::schema(&case["schema"]), case["hasStatus"] == json!(true));
        for (i, (op, want)) in case["ops"]
            .as_array()
            .unwrap()
            .iter()
            .zip(answer.as_array().unwrap())
            .enumerate()
        {
            steps += 1;
            let step = harness::Step {
                by: op["manager"].as_str().unwrap().into(),
                body: op["body"].clone(),
                is_apply: op["op"] == "apply",
                force: op["force"] == json!(true),
                subresource: if op["sub"] == "status" { "status" } else { "" },
            };
            let missing = step.subresource == "status" && server.live.is_none();
            let answer = if missing {
                Err(crate::error::ApiError::bad_request("not found"))
            } else {
                server.write(&step)
            };
            let got = match answer {
                Err(e) => {
                    let mut v = json!({"error": e.message});
                    let causes: Vec<Value> = e
                        .details
                        .iter()
                        .flat_map(|d| &d.causes)
                        .map(|c| json!(format!("{}|{}|{}", c.reason, c.message, c.field)))
                        .collect();
                    if !causes.is_empty() {
                        v["causes"] = json!(causes);
                    }
                    v
                }
                Ok(()) => {
                    let owners: Vec<Value> = server
                        .managed()
                        .iter()
                        .map(|e| {
                            let mut e = e.clone();
                            let o = e.as_object_mut().unwrap();
                            let timed = o.remove("time").is_some();
                            o.insert("timed".into(), json!(timed));
                            o.remove("fieldsType");
                            e
                        })
                        .collect();
                    let mut object = server.live.clone().unwrap();
                    object["metadata"]
                        .as_object_mut()
                        .unwrap()
                        .remove("managedFields");
                    let mut v = json!({"object": object});
                    if !owners.is_empty() {
                        v["owners"] = json!(owners);
                    }
                    v
                }
            };
            let mut want = want.clone();
            let mut got = got;
            for v in [&mut want, &mut got] {
                if let Some(c) = v.get_mut("causes").and_then(Value::as_array_mut) {
                    c.sort_by_key(|v| v.to_string());
                }
                if v["causes"].as_array().is_some_and(|c| c.len() > 1) {
                    v["error"] = json!("");
                }
                if v["error"].as_str().is_some_and(|e| e.contains("errors:\n")) {
                    let e = v["error"].as_str().unwrap();
                    let mut l: Vec<&str> = e.lines().collect();
                    l.sort_unstable();
                    v["error"] = json!(l.join("\n"));
                }
                if v.get("causes").is_some_and(|c| c.is_null()) {
                    v.as_object_mut().unwrap().remove("causes");
                }
                if v.get("error").is_some_and(|c| c.is_null()) {
                    v.as_object_mut().unwrap().remove("error");
                }
            }
            if got != want {
                bad += 1;
                if bad <= 5 {
                    writeln!(
                        report,
                        "CASE {}\nSCHEMA {}\n step {i}\n WANT {want}\n GOT  {got}\n",
                        case["ops"], case["schema"]
                    )
                    .unwrap();
                }
                break;
            }
        }
    }
    assert!(
        bad == 0,
        "{bad} bad of {} ({steps} steps)\n{report}",
        cases.lines().count()
    );
    println!("{steps} steps agree");
}
