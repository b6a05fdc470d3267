-- Who was paid to a wallet first: its refunds are that merchant's.
create index payouts_captures_to on payouts (chain_id, recipient, block_number, nonce) where kind = 'capture' and succeeded;
