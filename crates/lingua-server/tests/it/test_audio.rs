//! Audio for tests of the voice detector; the end-to-end tests use it too.

/// 20 ms of a sound like a vowel, or of a steady hiss.
pub(crate) fn frame(rate: u32, n: u32, voiced: bool) -> Vec<u8> {
    let samples = rate / 50;
    let mut noise = n.wrapping_mul(2_654_435_761) | 1;
    let sample = |i: u32| {
        let t = f64::from(n * samples + i) / f64::from(rate);
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let hiss = f64::from(noise >> 16) / 65_536.0 - 0.5;
        let pitch = 120.0 + 20.0 * (t * 5.0).sin();
        let vowel: f64 = (1..30)
            .map(|k| {
                let f = pitch * f64::from(k);
                let formants = [(700.0, 90.0), (1_200.0, 110.0), (2_600.0, 160.0)];
                let gain: f64 =
                    formants.iter().map(|(at, wide)| (-((f - at) / wide).powi(2)).exp()).sum();
                gain * (t * f * std::f64::consts::TAU).sin()
            })
            .sum();
        let loud = 0.6 + 0.4 * (t * 25.0).sin();
        let value = if voiced { vowel * loud * 6_000.0 } else { hiss * 60.0 };
        (value as i16).to_le_bytes()
    };
    (0..samples).flat_map(sample).collect()
}
