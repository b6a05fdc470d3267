-- The scan looks at blocks, not at each transfer in them: anyone can put thousands of transfers into a block. These find
-- the blocks that may be confirmed, and those that another one may have displaced, among any number of transfers that
-- wait to be final.
create index transfers_seen on transfers (chain_id, block_number) where state = 'seen';
create index transfers_suspected on transfers (chain_id, block_number) where suspect_at is not null;
create index transfers_single on transfers (chain_id, id) where single_source and state in ('seen', 'confirmed');

-- slow: the others go on without it. useless: its answers only cost.
alter table endpoint_troubles drop constraint endpoint_troubles_kind_check;
alter table endpoint_troubles add constraint endpoint_troubles_kind_check
  check (kind in ('silent', 'behind', 'contradiction', 'logs', 'slow', 'useless'));
