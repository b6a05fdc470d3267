-- The link of an invitation has its token, which must not stand in the database in plain while the mail waits.
--
-- Locks: mails alone, for no longer than the catalogue takes; no row is rewritten but those of invitations that were not accepted.
alter table mails add column sealed text;
comment on column mails.sealed is 'The path of a link that has a token, under SECRET_KEY: it is put below the body when the mail is sent. Null once that is over.';
update mails set body = null where notice = 'invitation' and status = 'failed';
