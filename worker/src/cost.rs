//! Where the time of a step goes.

use std::time::{Duration, Instant};

use nightshift_protocol::measurement::CostPart;

/// Takes the time of one part after another.
#[derive(Debug)]
pub(crate) struct Cost {
    parts: Vec<CostPart>,
    since: Instant,
}

impl Cost {
    /// From now on.
    pub(crate) fn start() -> Self {
        Self { parts: Vec::new(), since: Instant::now() }
    }

    /// Ends a part. Parts of the same name are added up.
    pub(crate) fn part(&mut self, name: &str) {
        let now = Instant::now();
        let ms = now.duration_since(self.since).as_secs_f64() * 1e3;
        self.since = now;
        match self.parts.iter_mut().find(|part| part.name == name) {
            Some(part) => part.ms += ms,
            None => self.parts.push(CostPart { name: name.to_owned(), ms }),
        }
    }

    /// Ends what was found to have these parts.
    pub(crate) fn divide(&mut self, parts: &[CostPart]) {
        self.since = Instant::now();
        self.parts.extend_from_slice(parts);
    }

    /// Counts time of one part to another one.
    pub(crate) fn move_to(&mut self, from: &str, to: &str, time: Duration) {
        let ms = time.as_secs_f64() * 1e3;
        if let Some(part) = self.parts.iter_mut().find(|part| part.name == from) {
            part.ms = (part.ms - ms).max(0.0);
        }
        match self.parts.iter_mut().find(|part| part.name == to) {
            Some(part) => part.ms += ms,
            None => self.parts.push(CostPart { name: to.to_owned(), ms }),
        }
    }

    /// Every part so far.
    pub(crate) fn parts(&self) -> Vec<CostPart> {
        self.parts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_same_name_are_one() {
        let mut cost = Cost::start();
        for name in ["contexts", "samples", "contexts"] {
            cost.part(name);
        }
        let names: Vec<String> = cost.parts().into_iter().map(|part| part.name).collect();
        assert_eq!(names, ["contexts", "samples"]);
        cost.move_to("contexts", "waiting", Duration::from_secs(1));
        let waiting = cost.parts().pop().map(|part| (part.name, part.ms.round()));
        assert_eq!(waiting, Some(("waiting".to_owned(), 1000.0)));
    }
}
