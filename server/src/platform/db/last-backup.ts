/**
 * When the last known backup started. The time is in the database itself, so a copy contains the time of the backup
 * before it.
 */

/** SQL: records a backup that started at $1, a text in ISO 8601. A time before the recorded one is ignored. */
export const NOTE_BACKUP = `insert into installation (key, value) values ('backup', $1)
  on conflict (key) do update set value = excluded.value where installation.value < excluded.value`

/** SQL: how many seconds ago the last backup started, null if none is known; and the age of the installation. */
export const BACKUP_AGE = `select
  extract(epoch from clock_timestamp() - (select value::timestamptz from installation where key = 'backup'))::float8 as backup_s,
  extract(epoch from clock_timestamp() - (select min(applied_at) from migrations))::float8 as age_s`
