use super::*;

/// Returns the new value that an operation computes, or `None` if the value stays.
fn made(
    op: AmoOp,
    data_type: AmoType,
    old: &[u8],
    operand: &[u8],
    compare: &[u8],
) -> Option<Vec<u8>> {
    let mut new = vec![0xee; atomic_size(data_type)];
    let calculation = Calculation::new(op, data_type).expect("the operation is defined");
    calculation.compute(old, operand, compare, &mut new).then_some(new)
}

macro_rules! value {
    ($op:ident $type:ident($kind:ty) $old:expr, $operand:expr) => {
        made(
            AmoOp::$op,
            AmoType::$type,
            &<$kind>::to_ne_bytes($old),
            &<$kind>::to_ne_bytes($operand),
            &[],
        )
        .map(|new| <$kind>::from_ne_bytes(new.try_into().unwrap()))
    };
    ($op:ident $type:ident($kind:ty) $old:expr, $operand:expr, $compare:expr) => {
        made(
            AmoOp::$op,
            AmoType::$type,
            &<$kind>::to_ne_bytes($old),
            &<$kind>::to_ne_bytes($operand),
            &<$kind>::to_ne_bytes($compare),
        )
        .map(|new| <$kind>::from_ne_bytes(new.try_into().unwrap()))
    };
}

#[test]
fn integers_wrap_and_compare_with_their_sign() {
    assert_eq!(value!(Sum Int8(i8) 127, 1), Some(-128));
    assert_eq!(value!(Diff Uint16(u16) 1, 2), Some(0xffff));
    assert_eq!(value!(Prod Uint64(u64) 1 << 63, 3), Some(1 << 63));
    assert_eq!(value!(Min Int32(i32) 1, -1), Some(-1));
    assert_eq!(value!(Min Uint32(u32) 1, u32::MAX), None);
    assert_eq!(value!(Max Int128(i128) -5, 1 << 100), Some(1 << 100));
    assert_eq!(value!(Sum Uint128(u128) u128::MAX, 2), Some(1));
    assert_eq!(value!(Lor Int16(i16) 0, 0), Some(0));
    assert_eq!(value!(Land Int16(i16) 4, 8), Some(1));
    assert_eq!(value!(Lxor Int64(i64) 4, 8), Some(0));
    assert_eq!(value!(Bor Uint8(u8) 5, 8), Some(13));
    assert_eq!(value!(Band Uint8(u8) 5, 4), Some(4));
    assert_eq!(value!(Bxor Uint128(u128) 5, 4), Some(1));
    assert_eq!(value!(Read Int32(i32) 1, 2), None);
    assert_eq!(value!(Write Int32(i32) 1, 2), Some(2));
}

#[test]
fn comparand_is_the_left_side_of_a_comparison() {
    // The old value is 5, the operand 9.
    assert_eq!(value!(Cswap Int32(i32) 5, 9, 5), Some(9));
    assert_eq!(value!(Cswap Int32(i32) 5, 9, 4), None);
    assert_eq!(value!(CswapNe Int32(i32) 5, 9, 4), Some(9));
    assert_eq!(value!(CswapLe Int32(i32) 5, 9, 4), Some(9));
    assert_eq!(value!(CswapLt Int32(i32) 5, 9, 5), None);
    assert_eq!(value!(CswapGe Int32(i32) 5, 9, 4), None);
    assert_eq!(value!(CswapGt Int32(i32) 5, 9, 6), Some(9));
    assert_eq!(value!(Mswap Uint16(u16) 0x1234, 0xabcd, 0x0ff0), Some(0x1bc4));
    // Zeros are equal whatever their sign. Nothing equals a NaN.
    assert_eq!(value!(Cswap Double(f64) 0.0, 3.5, -0.0), Some(3.5));
    assert_eq!(value!(Cswap Double(f64) f64::NAN, 3.5, f64::NAN), None);
    assert_eq!(value!(CswapNe Float(f32) f32::NAN, 3.5, 1.0), Some(3.5));
    assert_eq!(value!(CswapLe Float(f32) f32::NAN, 3.5, 1.0), None);
}

#[test]
fn float_operations_give_ieee_results() {
    assert_eq!(value!(Sum Float(f32) 1.5, 2.25), Some(3.75));
    assert_eq!(value!(Prod Double(f64) 1.5, -2.0), Some(-3.0));
    assert_eq!(value!(Max Double(f64) f64::NAN, 1.0), None);
    assert_eq!(value!(Lor Double(f64) 0.5, 0.0), Some(1.0));
    assert_eq!(value!(Land Float(f32) -0.0, 1.0), Some(0.0));
}

fn halves(bits: u16) -> [u8; 2] {
    bits.to_ne_bytes()
}

#[test]
fn short_floats_round_to_even() {
    let sum = |kind, a, b| made(AmoOp::Sum, kind, &halves(a), &halves(b), &[]);
    // 1 + 2 = 3; 2048 + 1 is half-way between 2048 and 2050; 65504 + 65504 overflows to infinity.
    assert_eq!(sum(AmoType::Fp16, 0x3c00, 0x4000), Some(halves(0x4200).to_vec()));
    assert_eq!(sum(AmoType::Fp16, 0x6800, 0x3c00), Some(halves(0x6800).to_vec()));
    assert_eq!(sum(AmoType::Fp16, 0x7bff, 0x7bff), Some(halves(0x7c00).to_vec()));
    assert_eq!(sum(AmoType::Bf16, 0x3f80, 0x4000), Some(halves(0x4040).to_vec()));
    let lor = made(AmoOp::Lor, AmoType::Bf16, &halves(0), &halves(0x4040), &[]);
    assert_eq!(lor, Some(halves(0x3f80).to_vec()));
}

/// Uses 1.5, 2 and 3 in the x87 format.
#[cfg(target_arch = "x86_64")]
#[test]
fn long_doubles_ignore_their_padding() {
    let number = |mantissa: u64, exponent: u16, rest: u8| {
        let mut bytes = mantissa.to_le_bytes().to_vec();
        bytes.extend(exponent.to_le_bytes());
        bytes.extend([rest; 6]);
        bytes
    };
    let (half_more, two) = (number(3 << 62, 0x3fff, 1), number(1 << 63, 0x4000, 2));
    let three = number(3 << 62, 0x4000, 0);
    let of = |op, a: &[u8], b: &[u8], c: &[u8]| made(op, AmoType::LongDouble, a, b, c);
    assert_eq!(of(AmoOp::Prod, &half_more, &two, &[]), Some(three.clone()));
    assert_eq!(of(AmoOp::Sum, &half_more, &half_more, &[]), Some(three.clone()));
    assert_eq!(of(AmoOp::Diff, &two, &two, &[]), Some(vec![0; 16]));
    assert_eq!(of(AmoOp::Cswap, &number(3 << 62, 0x4000, 9), &two, &three), Some(two.clone()));
    // (1.5 + 2i)(1.5 + 2i) = 2.25 - 4 + 6i.
    let both = [half_more, two].concat();
    let product = made(AmoOp::Prod, AmoType::LongDoubleComplex, &both, &both, &[]).unwrap();
    assert_eq!(product, [number(0xe000 << 48, 0xbfff, 0), number(3 << 62, 0x4001, 0)].concat());
}

#[test]
fn complex_values_are_true_if_one_part_is_and_equal_if_both_are() {
    let of = |a: f32, b: f32| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
    let made = |op, old: &[u8], operand: &[u8], compare: &[u8]| {
        made(op, AmoType::FloatComplex, old, operand, compare)
    };
    assert_eq!(made(AmoOp::Prod, &of(1., 2.), &of(3., 4.), &[]), Some(of(-5., 10.)));
    assert_eq!(made(AmoOp::Diff, &of(1., 2.), &of(3., 5.), &[]), Some(of(-2., -3.)));
    assert_eq!(made(AmoOp::Land, &of(0., 2.), &of(3., 0.), &[]), Some(of(1., 0.)));
    assert_eq!(made(AmoOp::Cswap, &of(1., 2.), &of(3., 4.), &of(1., 3.)), None);
    assert_eq!(made(AmoOp::CswapNe, &of(1., 2.), &of(3., 4.), &of(1., 3.)), Some(of(3., 4.)));
}

#[test]
fn supported_operations_and_types_are_those_of_the_table() {
    let count = |op: &AmoOp| AmoType::ALL.iter().filter(|kind| is_defined(*op, **kind)).count();
    let counts: Vec<usize> = AmoOp::ALL.iter().map(count).collect();
    let (any, real, integer) = (18, 15, 10);
    #[rustfmt::skip]
    let expected = [
        real, real, any, any, any, any, any, integer, integer, any, integer, any, any,
        any, any, real, real, real, real, integer, 0,
    ];
    assert_eq!(counts, expected);
    for kind in AmoType::ALL {
        let size = atomic_size(*kind);
        assert!(size <= LONGEST && (size as u64).is_multiple_of(alignment(*kind)));
        assert_eq!(max_atomic_count(AmoOp::Sum, *kind), Some(1024 / size));
        assert_eq!(max_atomic_count(AmoOp::Cswap, *kind), Some(512 / size));
    }
    assert_eq!(max_atomic_count(AmoOp::Mswap, AmoType::Float), None);
    assert_eq!(max_atomic_count(AmoOp::Vendor(0xe0), AmoType::Int8), None);
}

/// Arbitrary bit patterns, some of which are no valid number in the x87 format, cause no panic.
#[test]
fn arbitrary_bit_patterns_do_not_panic() {
    let mut rng = crate::base::Rng::new(5);
    let patterns = [0, 0xff, 0x7f, 0x80];
    let mut fill = |bytes: &mut [u8]| {
        for byte in bytes {
            let pick = rng.below(8) as usize;
            *byte = patterns.get(pick).copied().unwrap_or_else(|| rng.below(256) as u8);
        }
    };
    for _ in 0..2000 {
        let mut values = [[0; LONGEST]; 3];
        values.iter_mut().for_each(|value| fill(value));
        let [old, operand, compare] = values;
        for kind in AmoType::ALL {
            let size = atomic_size(*kind);
            let mut new = [0; LONGEST];
            for op in AmoOp::ALL {
                if let Some(calculation) = Calculation::new(*op, *kind) {
                    let (old, operand) = (&old[..size], &operand[..size]);
                    calculation.compute(old, operand, &compare[..size], &mut new[..size]);
                }
            }
        }
    }
}
