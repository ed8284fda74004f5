//! Numbers, which Go's decoder splits into 64-bit integers and floats.

use serde_json::{Number, Value};

use crate::{
    field::go_float,
    schema::{Schema, trail::Trail, validate::Checker},
};

/// A number as Go holds it after decoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Num {
    Integer(i64),
    Float(f64),
}

impl Num {
    pub(super) fn of(number: &Number) -> Self {
        match number.as_i64() {
            Some(integer) => Self::Integer(integer),
            None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    fn to_json(self) -> Value {
        match self {
            Self::Integer(integer) => Value::from(integer),
            Self::Float(float) => Value::from(float),
        }
    }
}

/// The fraction of a bound is cut off when an integer is compared with it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "Go cuts off the fraction, and so do the verdicts here"
)]
fn cut(bound: f64) -> i64 {
    bound as i64
}

#[expect(clippy::cast_precision_loss, reason = "Go converts the same way")]
fn widen(integer: i64) -> f64 {
    integer as f64
}

/// Whether a float is an integer that JSON can carry without loss, give or take a rounding error.
pub(super) fn is_whole(number: f64) -> bool {
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    const EPSILON: f64 = 1e-9;
    if !number.is_finite() || number.abs() > MAX_SAFE {
        return false;
    }
    let whole = number.trunc();
    if (number - whole).abs() == 0.0 {
        return true;
    }
    whole != 0.0 && (number - whole).abs() / (number.abs() + whole.abs()) < EPSILON
}

/// Whether a value is the one that an enumeration allows: numbers are converted to the type of the latter first.
pub(super) fn same(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        (_, Value::Null) => false,
        (Value::Number(value), Value::Number(allowed)) => match (Num::of(value), Num::of(allowed)) {
            (Num::Integer(value), Num::Integer(allowed)) => value == allowed,
            (Num::Integer(value), Num::Float(allowed)) => is_same_float(widen(value), allowed),
            (Num::Float(value), Num::Integer(allowed)) => cut(value) == allowed,
            (Num::Float(value), Num::Float(allowed)) => is_same_float(value, allowed),
        },
        _ => value == allowed,
    }
}

#[expect(clippy::float_cmp, reason = "an enumeration asks for exactly this number")]
fn is_same_float(value: f64, allowed: f64) -> bool {
    value == allowed
}

impl Checker<'_> {
    pub(super) fn number(&mut self, number: Num, schema: &Schema, trail: &Trail<'_>) {
        if let Some(factor) = schema.multiple_of {
            self.multiple(number, factor, trail);
        }
        if let Some(least) = schema.minimum {
            let exclusive = schema.exclusive_minimum;
            let (below, bound) = match number {
                Num::Integer(integer) => {
                    let least = cut(least);
                    (
                        if exclusive {
                            integer <= least
                        } else {
                            integer < least
                        },
                        least.to_string(),
                    )
                }
                Num::Float(float) => (
                    if exclusive { float <= least } else { float < least },
                    go_float(least),
                ),
            };
            if below {
                let relation = if exclusive {
                    "greater than"
                } else {
                    "greater than or equal to"
                };
                self.in_body(trail, number.to_json(), &format!("should be {relation} {bound}"));
            }
        }
        if let Some(most) = schema.maximum {
            let exclusive = schema.exclusive_maximum;
            let (above, bound) = match number {
                Num::Integer(integer) => {
                    let most = cut(most);
                    (
                        if exclusive {
                            integer >= most
                        } else {
                            integer > most
                        },
                        most.to_string(),
                    )
                }
                Num::Float(float) => (
                    if exclusive { float >= most } else { float > most },
                    go_float(most),
                ),
            };
            if above {
                let relation = if exclusive {
                    "less than"
                } else {
                    "less than or equal to"
                };
                self.in_body(trail, number.to_json(), &format!("should be {relation} {bound}"));
            }
        }
    }

    fn multiple(&mut self, number: Num, factor: f64, trail: &Trail<'_>) {
        let (fits, shown, positive) = match number {
            Num::Integer(integer) => {
                let factor = cut(factor);
                (
                    factor > 0 && integer % factor == 0,
                    factor.to_string(),
                    factor > 0,
                )
            }
            Num::Float(float) => {
                let quotient = if factor < 1.0 {
                    1.0 / factor * float
                } else {
                    float / factor
                };
                (factor > 0.0 && is_whole(quotient), go_float(factor), factor > 0.0)
            }
        };
        if !positive {
            let name = trail.render();
            let detail = format!("factor MultipleOf declared for {name} must be positive: {shown}");
            let shown = match number {
                Num::Integer(_) => Value::from(cut(factor)),
                Num::Float(_) => Value::from(factor),
            };
            self.invalid(trail, shown, &detail);
        } else if !fits {
            self.in_body(
                trail,
                number.to_json(),
                &format!("should be a multiple of {shown}"),
            );
        }
    }
}
