//! Statistics over samples of several seeds.

/// Returns the mean of the samples; `None` without samples.
pub(crate) fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Returns half of the 95 % confidence interval of the mean (Student's t); `None` for fewer than
/// two samples.
pub(crate) fn half_interval(samples: &[f64]) -> Option<f64> {
    /// Two-sided 95 % quantiles by degrees of freedom, from 1 on.
    const T: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    /// Coefficients of 1.96 + 2.5 / degrees, which is exact to 1 % for 11 degrees of freedom and
    /// more.
    const BEYOND: (f64, f64) = (1.96, 2.5);
    let (n, degrees) = (samples.len() as f64, samples.len().checked_sub(1)?);
    let t = match degrees {
        0 => return None,
        1..=10 => T[degrees - 1],
        _ => BEYOND.0 + BEYOND.1 / degrees as f64,
    };
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|value| (value - mean).powi(2)).sum();
    Some(t * (squares / degrees as f64 / n).sqrt())
}
