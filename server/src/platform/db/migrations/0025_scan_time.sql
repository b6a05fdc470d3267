-- When the last block that the scan has surely read was made: a checkout expires by this, not by a clock.
-- Null until the next round fills it, and nothing expires meanwhile.
alter table cursors add column block_time timestamptz;
