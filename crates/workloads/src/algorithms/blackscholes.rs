//! Prices of options by the Black-Scholes formula.

use std::f64::consts::FRAC_1_SQRT_2;

use memtide_core::Stage;

use crate::array::{Array, Space};
use crate::error::WorkloadError;
use crate::info::Info;
use crate::memory::Memory;
use crate::params::{self, Settings};
use crate::random::Random;
use crate::workload::{Algorithm, Phase, Workload};

/// Options per item.
const BLOCK: usize = 256;
/// Per price: a logarithm, a square root, three exponentials, the polynomials and the rest.
const PRICE_INSTRUCTIONS: u64 = 230;

/// Options, one array per property.
pub struct Blackscholes {
    threads: usize,
    iterations: usize,
    seed: u64,
    spot: Array<f32>,
    strike: Array<f32>,
    rate: Array<f32>,
    volatility: Array<f32>,
    years: Array<f32>,
    /// 1 for a put option, 0 for a call option.
    put: Array<u32>,
    price: Array<f32>,
}

#[derive(Clone, Copy)]
pub enum Step {
    Init,
    Price,
}

impl Algorithm for Blackscholes {
    const INFO: Info = Info {
        name: "blackscholes",
        summary: "prices options by the Black-Scholes formula",
        stresses: "arithmetic; little bandwidth",
        source: "F. Black and M. Scholes, 1973; after PARSEC's blackscholes",
        parameters: &[params::footprint_mib(32), params::iterations(1), params::threads(16), params::PAGE],
    };

    fn new(settings: &Settings, seed: u64, space: &mut Space) -> Result<Blackscholes, WorkloadError> {
        let options = settings.footprint_bytes() / (7 * 4) / BLOCK * BLOCK;
        Ok(Blackscholes {
            threads: settings.threads(),
            iterations: settings.size("iterations"),
            seed,
            spot: space.array("spot", options)?,
            strike: space.array("strike", options)?,
            rate: space.array("rate", options)?,
            volatility: space.array("volatility", options)?,
            years: space.array("years", options)?,
            put: space.array("put", options)?,
            price: space.array("price", options)?,
        })
    }
}

/// The probability that a standard normal variable is below x.
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// An option's price.
fn price(put: bool, spot: f64, strike: f64, rate: f64, volatility: f64, years: f64) -> f64 {
    let spread = volatility * years.sqrt();
    let d1 = (libm::log(spot / strike) + (rate + volatility * volatility / 2.0) * years) / spread;
    let sign = if put { -1.0 } else { 1.0 };
    let discounted = strike * libm::exp(-rate * years);
    sign * (spot * normal(sign * d1) - discounted * normal(sign * (d1 - spread)))
}

impl Workload for Blackscholes {
    type Step = Step;
    type Local = ();

    fn threads(&self) -> usize {
        self.threads
    }

    fn phases(&self) -> Vec<Phase<Step>> {
        let blocks = self.price.len() / BLOCK;
        let prices = std::iter::repeat_n(Step::Price, self.iterations);
        std::iter::once(Step::Init).chain(prices).map(|step| Phase::new(step, blocks)).collect()
    }

    fn stage(&self, _: usize, step: Step) -> Stage {
        if matches!(step, Step::Init) { Stage::Initialisation } else { Stage::Region }
    }

    fn local(&self, _thread: usize) {}

    fn run<M: Memory>(&self, m: &mut M, step: Step, item: usize, _local: &mut ()) {
        for i in item * BLOCK..(item + 1) * BLOCK {
            match step {
                Step::Init => {
                    let mut random = Random::new(self.seed, i as u64);
                    let mut between = |low: f64, high: f64| (low + (high - low) * random.unit()) as f32;
                    m.work(40);
                    m.store(&self.spot, i, between(20.0, 200.0));
                    m.store(&self.strike, i, between(20.0, 200.0));
                    m.store(&self.rate, i, between(0.01, 0.1));
                    m.store(&self.volatility, i, between(0.05, 0.65));
                    m.store(&self.years, i, between(0.1, 2.0));
                    m.store(&self.put, i, (i % 2) as u32);
                    m.store(&self.price, i, 0.0);
                }
                Step::Price => {
                    let [spot, strike, rate, volatility, years] =
                        [&self.spot, &self.strike, &self.rate, &self.volatility, &self.years]
                            .map(|array| f64::from(*m.load(array, i)));
                    let put = *m.load(&self.put, i) == 1;
                    m.work(PRICE_INSTRUCTIONS);
                    m.store(&self.price, i, price(put, spot, strike, rate, volatility, years) as f32);
                }
            }
        }
    }

    /// The sum of all prices.
    fn result(&self) -> f64 {
        self.price.values().map(f64::from).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::check;

    #[test]
    fn option_prices_match_reference() {
        assert!((price(false, 100.0, 100.0, 0.05, 0.2, 1.0) - 10.450_583_6).abs() < 1e-6);
        assert!((price(true, 100.0, 100.0, 0.05, 0.2, 1.0) - 5.573_526).abs() < 1e-6);
    }

    #[test]
    fn puts_and_calls_are_at_parity() {
        let (program, _) = check::<Blackscholes>("footprint_mib=1,threads=3");
        let options = program.workload();
        for i in 0..options.price.len() {
            let [spot, strike, rate, volatility, years] =
                [&options.spot, &options.strike, &options.rate, &options.volatility, &options.years]
                    .map(|array| f64::from(array.get(i)));
            let put = options.put.get(i) == 1;
            let other = price(!put, spot, strike, rate, volatility, years);
            let difference = (f64::from(options.price.get(i)) - other) * if put { -1.0 } else { 1.0 };
            assert!((difference - (spot - strike * libm::exp(-rate * years))).abs() < 1e-4);
        }
    }
}
