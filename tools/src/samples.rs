//! Statistics of what several seeds gave.

/// Mean; `None` of nothing.
pub(crate) fn mean(samples: &[f64]) -> Option<f64> {
    (!samples.is_empty()).then(|| samples.iter().sum::<f64>() / samples.len() as f64)
}

/// Half of the interval in which the mean of what was sampled lies with a confidence of 95 % (Student's t); `None` for a
/// single sample.
pub(crate) fn half_interval(samples: &[f64]) -> Option<f64> {
    /// Two-sided 95 % quantiles by degrees of freedom, from 1 on.
    const T: [f64; 10] = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    /// Between 11 and infinitely many, to 1 %: 1.96 + 2.5 / degrees.
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
