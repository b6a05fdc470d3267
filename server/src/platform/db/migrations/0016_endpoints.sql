-- What endpoints agree on. A transfer that one of two endpoints alone vouches for counts towards small payments only; all
-- that is known so far was agreed on as the rules then were.
alter table transfers add column single_source boolean not null default false;

-- Which endpoints differ from the others, lag, or do not answer; `position` counts from 0 in the order of the setting.
create table endpoint_troubles (
  chain_id integer not null,
  position integer not null,
  kind text not null check (kind in ('silent', 'behind', 'contradiction')),
  since timestamptz not null,
  last_at timestamptz not null,
  -- Whether it lasted long enough, or was plain enough, that a person should look.
  is_alarm boolean not null,
  primary key (chain_id, position, kind)
);
