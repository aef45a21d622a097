//! Sine and cosine that give the same bits on every machine.
//!
//! The code uses only `+ - *`, comparisons and bit operations (and `%`, which IEEE 754 makes exact, for far arguments),
//! so the results depend neither on a libm nor on the instruction set. The polynomials are fdlibm's, the reduction is
//! Cody and Waite's in three parts.
//!
//! The error is at most 1 ulp of the result plus 2^-100 for `|x| <= FAR`. Beyond `FAR`, the result is that of an
//! argument at most half an ulp of `x` away, to the same error. NaN and infinities give NaN, and the sine of either
//! zero is +0.

/// Largest argument that is reduced without loss.
pub(crate) const FAR: f64 = 1_048_576.0;

/// Largest argument of [`sin_cos_near`].
pub(crate) const NEAR: f64 = 0.3125;

/// Effort that a run of arguments needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// All arguments have `|x| <= NEAR`.
    Near,
    /// All arguments have `|x| <= FAR`; [`sin_cos_wide`] takes them.
    Wide,
    /// Some arguments are beyond, or NaN; they need [`fold`] first.
    Far,
}

/// Returns the narrowest range in which all of `arguments` lie.
#[inline(always)]
pub(crate) fn range(arguments: &[f64]) -> Range {
    if all_within(arguments, NEAR) {
        Range::Near
    } else if all_within(arguments, FAR) {
        Range::Wide
    } else {
        Range::Far
    }
}

#[inline(always)]
fn all_within(arguments: &[f64], bound: f64) -> bool {
    // No early exit, so that this becomes vector code.
    arguments.iter().fold(true, |all, x| all & within(*x, bound))
}

/// Returns whether `|x|` is at most `bound`; false for NaN.
#[inline(always)]
fn within(x: f64, bound: f64) -> bool {
    x.abs() <= bound
}

/// Returns sine and cosine of any argument.
#[inline(always)]
pub fn sin_cos(x: f64) -> (f64, f64) {
    sin_cos_wide(fold(x))
}

/// Brings `x` below [`FAR`] if it is not there yet; other arguments are returned as they are.
#[inline(always)]
pub(crate) fn fold(x: f64) -> f64 {
    if within(x, FAR) { x } else { x % TAU }
}

/// Returns sine and cosine of `|x| <= NEAR` from shorter polynomials, to 1 ulp of the result. The bits differ from
/// those of [`sin_cos`]: an env that wants this speed uses [`sin_cos_mostly_near`] for other arguments, so that a
/// lane's results do not depend on its neighbours'.
#[inline(always)]
pub(crate) fn sin_cos_near(x: f64) -> (f64, f64) {
    let z = x * x;
    let sin = SIN_NEAR[1] + z * (SIN_NEAR[2] + z * (SIN_NEAR[3] + z * SIN_NEAR[4]));
    let cos = COS_NEAR[0] + z * (COS_NEAR[1] + z * (COS_NEAR[2] + z * COS_NEAR[3]));
    (x + (z * x) * (SIN_NEAR[0] + z * sin), 1.0 - z * (0.5 - z * cos))
}

/// Returns [`sin_cos_near`] within its bound, else the result of `beyond`.
#[inline(always)]
pub(crate) fn sin_cos_mostly_near(x: f64, beyond: impl Fn(f64) -> (f64, f64)) -> (f64, f64) {
    let (near, far) = (sin_cos_near(x), beyond(x));
    if within(x, NEAR) { near } else { far }
}

/// Returns sine and cosine of `|x| <= FAR`.
#[inline(always)]
pub(crate) fn sin_cos_wide(x: f64) -> (f64, f64) {
    // Adding 1.5 * 2^52 rounds to an integer, whose low bits are then the low bits of the sum.
    let shifted = x * std::f64::consts::FRAC_2_PI + ROUND;
    let turns = shifted - ROUND;
    let quadrant = shifted.to_bits();

    // turns * PI_2_A and turns * PI_2_B are exact, and so is the first difference.
    let a = x - turns * PI_2_A;
    let b = turns * PI_2_B;
    let y = a - b;
    let back = y - a;
    let y_low = ((a - (y - back)) - (b + back)) - turns * PI_2_C;
    let r = y + y_low;
    let tail = (y - r) + y_low;

    // To first order in the tail, sin(r + tail) = sin(r) + tail * cos(r), cos(r + tail) = cos(r) - tail * r.
    let z = r * r;
    let sin = r + (sin_rest(r, z) + tail * (1.0 - 0.5 * z));
    let cos = 1.0 - (z * cos_rest(z) + tail * r);

    let (s, c) = if quadrant & 1 == 0 { (sin, cos) } else { (cos, sin) };
    let sin_sign = (quadrant & 2) << 62;
    let cos_sign = (quadrant.wrapping_add(1) & 2) << 62;
    (f64::from_bits(s.to_bits() ^ sin_sign), f64::from_bits(c.to_bits() ^ cos_sign))
}

/// Returns NumPy's `x % (2 * pi)` exactly, in `[0, 2 pi]`, for `|x| <= FAR`.
#[inline(always)]
pub(crate) fn modulo_tau_wide(x: f64) -> f64 {
    let magnitude = x.abs();
    let turns = (magnitude * (1.0 / TAU) + ROUND) - ROUND;
    // Both products and both differences are exact: TAU_HIGH has 33 bits, the rest 20, `turns` at most 20,
    // and the differences are multiples of the coarsest last place that fit in a double.
    let nearest = (magnitude - turns * TAU_HIGH) - turns * (TAU - TAU_HIGH);
    let remainder = if nearest < 0.0 { nearest + TAU } else { nearest };
    if x < 0.0 && remainder != 0.0 { TAU - remainder } else { remainder }
}

/// Returns NumPy's `x % (2 * pi)` of any `x`; NaN for infinities.
#[inline(always)]
pub(crate) fn modulo_tau(x: f64) -> f64 {
    if within(x, FAR) {
        return modulo_tau_wide(x);
    }
    let remainder = x % TAU;
    if remainder < 0.0 { remainder + TAU } else { remainder }
}

/// Returns sin(x) - x; `z` is `x * x`.
#[inline(always)]
fn sin_rest(x: f64, z: f64) -> f64 {
    let p = SIN[1] + z * (SIN[2] + z * (SIN[3] + z * (SIN[4] + z * SIN[5])));
    (z * x) * (SIN[0] + z * p)
}

/// Returns (1 - cos(x)) / z; `z` is `x * x`.
#[inline(always)]
fn cos_rest(z: f64) -> f64 {
    0.5 - z * (COS[0] + z * (COS[1] + z * (COS[2] + z * (COS[3] + z * (COS[4] + z * COS[5])))))
}

/// Coefficients of fdlibm's `__kernel_sin`.
#[expect(clippy::excessive_precision, reason = "as fdlibm prints them")]
const SIN: [f64; 6] = [
    -1.666_666_666_666_663_243_48e-1,
    8.333_333_333_322_489_461_24e-3,
    -1.984_126_982_985_794_931_34e-4,
    2.755_731_370_707_006_767_89e-6,
    -2.505_076_025_340_686_341_95e-8,
    1.589_690_995_211_550_102_21e-10,
];

/// Coefficients of fdlibm's `__kernel_cos`.
#[expect(clippy::excessive_precision, reason = "as fdlibm prints them")]
const COS: [f64; 6] = [
    4.166_666_666_666_660_190_37e-2,
    -1.388_888_888_887_410_957_49e-3,
    2.480_158_728_947_672_941_78e-5,
    -2.755_731_435_139_066_330_35e-7,
    2.087_572_321_298_174_827_90e-9,
    -1.135_964_755_778_819_482_65e-11,
];

/// Coefficients of the polynomials in x^2 that interpolate (sin(x) - x) / x^3 and (cos(x) - 1 + x^2 / 2) / x^4 in the
/// Chebyshev nodes of `[0, NEAR^2]`.
const SIN_NEAR: [f64; 5] = [
    -0.166_666_666_666_666_66,
    0.008_333_333_333_331_909,
    -0.000_198_412_698_295_982_48,
    2.755_728_575_557_606_6e-6,
    -2.501_293_134_855_626_6e-8,
];
const COS_NEAR: [f64; 4] = [
    0.041_666_666_666_665_186,
    -0.001_388_888_888_403_327_3,
    2.480_156_243_857_748_8e-5,
    -2.751_657_437_676_002_7e-7,
];

/// First 33 bits of pi/2.
const PI_2_A: f64 = f64::from_bits(0x3FF9_21FB_5440_0000);
/// Next 33 bits of pi/2.
const PI_2_B: f64 = f64::from_bits(0x3DD0_B461_1A60_0000);
/// Rest of pi/2.
const PI_2_C: f64 = f64::from_bits(0x3BA3_198A_2E03_7073);

const TAU: f64 = std::f64::consts::TAU;
const TAU_HIGH: f64 = 4.0 * PI_2_A;

const ROUND: f64 = 6_755_399_441_055_744.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits((sin, cos): (f64, f64)) -> (u64, u64) {
        (sin.to_bits(), cos.to_bits())
    }

    /// Whether both are the standard library's to two units in the last place: each side may be off by one.
    fn is_close((sin, cos): (f64, f64), x: f64) -> bool {
        [(sin, x.sin()), (cos, x.cos())].into_iter().all(|(ours, theirs)| {
            let ulp = theirs.abs().next_up() - theirs.abs();
            (ours - theirs).abs() <= 2.0 * ulp + 2f64.powi(-99)
        })
    }

    /// Doubles of every size up to the bound, both signs.
    fn up_to(bound: f64) -> impl Strategy<Value = f64> {
        prop_oneof![-bound..bound, (any::<f64>()).prop_filter("in range", move |x| x.abs() <= bound)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn results_are_the_standard_librarys_to_two_units_in_the_last_place(x in up_to(FAR)) {
            prop_assert!(is_close(sin_cos(x), x), "{:e}: {:?}", x, sin_cos(x));
        }

        #[test]
        fn near_results_are_too(x in up_to(NEAR)) {
            prop_assert!(is_close(sin_cos_near(x), x), "{:e}: {:?}", x, sin_cos_near(x));
        }

        #[test]
        fn far_results_are_those_of_an_argument_half_an_ulp_away(x in -1e15..1e15f64) {
            let (sin, cos) = sin_cos(x);
            let allowed = (x.abs().next_up() - x.abs()) * 0.5 + 1e-15;
            prop_assert!((sin - x.sin()).abs() <= allowed, "{:e}", x);
            prop_assert!((cos - x.cos()).abs() <= allowed, "{:e}", x);
        }

        #[test]
        fn the_remainder_is_exact(x in prop_oneof![-100.0..100.0f64, up_to(FAR), any::<f64>()]) {
            // `%` is exact; NumPy then moves negative remainders up.
            let remainder = x % TAU;
            let expected = if remainder < 0.0 { remainder + TAU } else { remainder };
            prop_assert!(modulo_tau(x) == expected || x.is_nan() || x.is_infinite(), "{:e}", x);
        }
    }

    #[test]
    fn ranges_are_told_apart_at_their_edges() {
        assert_eq!(bits(sin_cos(-0.0)), bits((0.0, 1.0)));
        assert_eq!(range(&[NEAR, -NEAR, 0.0]), Range::Near);
        assert_eq!(range(&[NEAR.next_up()]), Range::Wide);
        assert_eq!(range(&[FAR, -FAR]), Range::Wide);
        assert_eq!(range(&[0.0, FAR.next_up()]), Range::Far);
        assert_eq!(range(&[f64::NAN]), Range::Far);
        for x in [0.0, -0.0, 1e-300, NEAR, -NEAR] {
            assert_eq!(bits(sin_cos_mostly_near(x, sin_cos)), bits(sin_cos_near(x)), "{x:e}");
        }
        for x in [NEAR.next_up(), -2.0, 1e7] {
            assert_eq!(bits(sin_cos_mostly_near(x, sin_cos)), bits(sin_cos(x)), "{x:e}");
        }
        assert!(sin_cos_mostly_near(f64::NAN, sin_cos).0.is_nan());
    }

    #[test]
    fn what_is_not_finite_gives_nan() {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let (sin, cos) = sin_cos(x);
            assert!(sin.is_nan() && cos.is_nan(), "{x}");
        }
    }
}
