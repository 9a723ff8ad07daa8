-- The speedup of an attempt over the fastest baseline of its task, in millionths; none where that baseline is not known.
ALTER TABLE attempt ADD COLUMN over_fastest_ppm INTEGER;
ALTER TABLE attempt ADD COLUMN over_fastest_low_ppm INTEGER;
ALTER TABLE attempt ADD COLUMN over_fastest_high_ppm INTEGER;
