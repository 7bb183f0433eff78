//! What is said of outliers, field by field, and what that makes.

use crate::body::Field;
use crate::check::CheckError;
use crate::check::outlier::Outlier;
use crate::check::words::{ERRORS, SHARE, bad, each, errors, millis, or, share, within};
use crate::declare::{DeclareError, number};
use crate::field::FieldError;
use crate::units::Millis;

/// The shortest and the longest ejection.
const EJECTION: (Millis, Millis) = (Millis(1_000), Millis(24 * 3_600_000));

/// The object `outlier` of a body, or the words of `peerage_outlier`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutlierBody {
    /// See [`Outlier::consecutive_errors`].
    pub consecutive_errors: Field<u16>,
    /// See [`Outlier::base`].
    pub base: Field<Millis>,
    /// See [`Outlier::max`].
    pub max: Field<Millis>,
    /// See [`Outlier::max_percent`].
    pub max_percent: Field<u8>,
}

impl OutlierBody {
    /// What is not at its default.
    pub(super) fn of(outlier: &Outlier) -> Self {
        let plain = Outlier::default();
        fn differs<T: Copy + PartialEq>(is: T, plain: T) -> Field<T> {
            if is == plain { Field::Absent } else { Field::Given(is) }
        }
        Self {
            consecutive_errors: differs(outlier.consecutive_errors, plain.consecutive_errors),
            base: differs(outlier.base, plain.base),
            max: differs(outlier.max, plain.max.max(outlier.base)),
            max_percent: differs(outlier.max_percent, plain.max_percent),
        }
    }

    /// The rules that this says.
    pub fn build(&self) -> Result<Outlier, CheckError> {
        let plain = Outlier::default();
        let base = or(&self.base, plain.base);
        within("base", base, EJECTION)?;
        let max = or(&self.max, plain.max.max(base));
        within("max", max, EJECTION)?;
        if max < base {
            return Err(bad("max", FieldError::BelowBase));
        }
        let consecutive_errors = or(&self.consecutive_errors, plain.consecutive_errors);
        if !(1..=Outlier::MAX_ERRORS).contains(&consecutive_errors) {
            return Err(bad("consecutive_errors", ERRORS));
        }
        let max_percent = or(&self.max_percent, plain.max_percent);
        if !(1..=100).contains(&max_percent) {
            return Err(bad("max_percent", SHARE));
        }
        Ok(Outlier { consecutive_errors, base, max, max_percent })
    }

    /// What is said, and of the rest what `under` says.
    pub(crate) fn over(self, under: Self) -> Self {
        Self {
            consecutive_errors: self.consecutive_errors.over(under.consecutive_errors),
            base: self.base.over(under.base),
            max: self.max.over(under.max),
            max_percent: self.max_percent.over(under.max_percent),
        }
    }

    /// Reads the words of `peerage_outlier`.
    pub(super) fn parse(words: &[&str]) -> Result<Self, DeclareError> {
        let mut body = Self::default();
        each(words, |name, value| {
            let Some(value) = value else { return Ok(false) };
            match name {
                "consecutive_errors" => {
                    body.consecutive_errors = Field::Given(errors(number(value))?);
                }
                "base" => body.base = Field::Given(millis(value)?),
                "max" => body.max = Field::Given(millis(value)?),
                "max_percent" => body.max_percent = Field::Given(share(number(value))?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(body)
    }
}
