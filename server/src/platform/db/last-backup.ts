/** When the last backup was begun that is known, in the database itself: a copy has the time of the one before it. */

/** SQL: notes a backup that was begun at $1, a text in ISO 8601. An earlier one than the last is no news. */
export const NOTE_BACKUP = `insert into installation (key, value) values ('backup', $1)
  on conflict (key) do update set value = excluded.value where installation.value < excluded.value`

/** SQL: how many seconds ago the last backup was begun, null where none is known; and the age of the installation. */
export const BACKUP_AGE = `select
  extract(epoch from clock_timestamp() - (select value::timestamptz from installation where key = 'backup'))::float8 as backup_s,
  extract(epoch from clock_timestamp() - (select min(applied_at) from migrations))::float8 as age_s`
