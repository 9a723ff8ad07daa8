-- Serve: ids that end with some digits, by their last eight digits in reverse.
CREATE INDEX campaign_by_ending ON campaign (reverse(right(public_id, 8)));
CREATE INDEX run_by_ending ON run (reverse(right(public_id, 8)));
